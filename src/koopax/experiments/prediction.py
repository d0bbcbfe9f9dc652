"""State and reward prediction over 100 steps: tables 1 and 2 of the paper.

Every network is trained for the same time, at two budgets, where each takes its losses on as many steps of a window as
pays for it, and for the same number of gradient steps, where all take them on every step. At equal time, the models of
a dataset and seed take turns in slices of some seconds, so that whatever else the machine does is shared among them.
Each is trained at the horizon that suits it best: all at the full one, the MLP at 10 steps, as in the paper; a further
arm, `mlp@100`, trains the MLP at the full horizon, where it gets through a tenth of the steps in the same time. DMDc
and EDMD are fitted by least squares, in seconds, and stand beside both budgets.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import legend_of, tidy
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.paper import (
    CONSISTENCY,
    DATASETS,
    MODELS,
    PAPER_RATE,
    PUBLISHED_MODELS,
    REWARD_ERROR,
    STATE_ERROR,
)
from koopax.experiments.styles import STYLES
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.models.presets import PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

MLP_HORIZON = 10
REGRESSIONS = ("dmdc", "edmd")
FITTED, STEPS = "fitted", "steps"
"""Regimes without a clock: least squares, and an equal number of gradient steps; the others are named by seconds."""
EARLY = 10
"""Steps that count as the first ones."""
WORST_DRAWN = 3.0
"""Figures end here: 1 is as wrong as the mean, and how far a regression diverges is in the table."""
# Levels are within this factor of each other.
LEVEL = 1.02
OURS = ("koopman", "koopman-paper")
NOTE = (
    "`koopman` is koopax's own model: two members, a multiscale spectrum, a pilot, actions remembered by the latent, "
    "other widths. "
    "`koopman-paper` is the published one: its spectrum, mirrored modes, input scale and widths, at the learning rate "
    "{rate:g}. {consistency} {turns}"
)
MIXED = "†"
MIXED_NOTE = (
    f" {MIXED} Models of this row were tested on data that were collected on different machines, whose episodes differ "
    "though policies and seeds are the same: compare with care."
)


@dataclass(frozen=True)
class PredictionBudget:
    """The size of the prediction experiment."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: tuple[float, ...]
    """Training times at which models are compared, each on its own."""
    steps: int
    """Gradient steps where models are compared at equal steps."""
    batch_size: int
    """Windows in a batch."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Test windows."""
    seeds: int
    """Seeds at equal time; there is one at equal steps."""
    datasets: int = 9
    """How many of the nine datasets, experts first."""


BUDGETS = {
    "smoke": PredictionBudget(
        data_steps=4_000, seconds=(2.0,), steps=4, batch_size=4, horizon=10, windows=50, seeds=1, datasets=1
    ),
    "cpu": PredictionBudget(
        data_steps=200_000, seconds=(30.0, 120.0), steps=200, batch_size=16, horizon=100, windows=2_000, seeds=3
    ),
    "paper": PredictionBudget(
        data_steps=1_000_000,
        seconds=(7_200.0,),
        steps=100_000,
        batch_size=256,
        horizon=100,
        windows=50_000,
        seeds=3,
    ),
}


def timed(seconds: float) -> str:
    """The name of a regime of that training time."""
    return f"{seconds:g}s"


def cells(budget: PredictionBudget) -> list[Cell]:
    """Datasets × regimes × models, experts first and seed after seed: an early stop leaves whole rows."""
    datasets = sorted(DATASETS, key=lambda name: "/expert" not in name)[: budget.datasets]
    fitted = [_cell(dataset, model, FITTED, 0, budget) for dataset in datasets for model in REGRESSIONS]
    by_time = [
        _cell(dataset, model, timed(seconds), seed, budget, seconds)
        for seed in range(budget.seeds)
        for seconds in budget.seconds
        for dataset in datasets
        for model in MODELS
    ]
    by_steps = [_cell(dataset, model, STEPS, 0, budget) for dataset in datasets for model in MODELS]
    undertrained = "koopax/halfcheetah/expert-v0"
    chosen, first = undertrained if undertrained in datasets else datasets[0], budget.seconds[0]
    return [*fitted, *by_time, *by_steps, _cell(chosen, "mlp@100", timed(first), 0, budget, first)]


def _cell(
    dataset: str, arm: str, regime: str, seed: int, budget: PredictionBudget, seconds: float | None = None
) -> Cell:
    model = arm.split("@")[0]
    short = dataset.removeprefix("koopax/").removesuffix("-v0")
    task = TrainTask(
        source=dataset,
        source_options={"steps": budget.data_steps},
        model=model,
        train=_fitting(budget) if regime == FITTED else _training(arm, budget, seed, seconds),
    )
    labels = {"dataset": short, "model": arm, "regime": regime, "seed": seed}
    group = None if seconds is None else f"{short}-{regime}-{seed}"
    return Cell(f"{short.replace('/', '-')}-{arm}-{regime}-{seed}", labels, task, group)


def _fitting(budget: PredictionBudget) -> TrainConfig:
    """Least squares, and returns to the encoder as the validation episodes have them best."""
    return TrainConfig(horizon=budget.horizon, steps=0, validation_windows=min(256, budget.windows))


def _training(arm: str, budget: PredictionBudget, seed: int, seconds: float | None) -> TrainConfig:
    by_time = seconds is not None
    return TrainConfig(
        horizon=min(MLP_HORIZON, budget.horizon) if arm == "mlp" else budget.horizon,
        reencode_every="never",
        steps=None if by_time else budget.steps,
        seconds=seconds,
        loss_stride=None if by_time else 1,
        learning_rate=PAPER_RATE if arm == "koopman-paper" else None,
        **(PLAIN_TRAINING if arm == "koopman-paper" or not by_time else {}),
        batch_size=budget.batch_size,
        seed=seed,
        validation_horizon=budget.horizon,
        validate_every=500,
        validation_windows=min(256, budget.windows),
    )


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Tables of state and reward errors by dataset and model, with the winner of each row, beside the paper's."""
    sections, document = [NOTE.format(rate=PAPER_RATE, consistency=CONSISTENCY, turns=_turns(found))], {}
    regimes = [name for name in dict.fromkeys(cell["labels"]["regime"] for cell in found) if name != FITTED]
    columns = [*MODELS, *(name for name in REGRESSIONS if any(cell["labels"]["model"] == name for cell in found))]
    for quantity, published in (("state", STATE_ERROR), ("reward", REWARD_ERROR)):
        for regime in regimes:
            for early in (False, True) if quantity == "state" else (False,):
                rows, wins = _rows(found, quantity, regime, columns, early=early)
                if not rows:
                    continue
                document[f"{quantity}{'-first-steps' if early else ''}-{regime}"] = rows
                sections.append(_section(quantity, regime, early, rows, wins, columns))
        names = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
        lines = [
            [name, *(f"{mean:g} ± {std:g}" for mean, std in published[name])] for name in names if name in published
        ]
        note = "units not stated, D4RL v2 data: ratios compare, absolute values do not"
        table = markdown(["dataset", *PUBLISHED_MODELS], lines)
        sections.append(f"## {quantity.capitalize()} error in the paper ({note})\n\n{table}")
    if any(row["mixed"] for rows in document.values() for row in rows):
        sections[0] += MIXED_NOTE
    return Summary("Prediction error over the horizon, normalised", sections, document)


def _section(
    quantity: str, regime: str, early: bool, rows: list[dict[str, Any]], wins: dict[str, int], columns: list[str]
) -> str:
    lines = [
        [
            f"{row['dataset']} {MIXED}" if row["mixed"] else row["dataset"],
            *(row["models"].get(m, {}).get("text", "–") for m in columns),
            row["best"],
        ]
        for row in rows
    ]
    measured = [name for name in OURS if any(name in row["models"] for row in rows)]
    lowest = ", ".join(f"`{name}` lowest in {wins[name]}" for name in measured) or "lowest"
    steps = f" of steps 1 to {EARLY}" if early else ""
    budget = "equal gradient steps" if regime == STEPS else f"{regime.removesuffix('s')} seconds of training"
    heading = f"{quantity.capitalize()} error{steps}, {budget}: {lowest} of {len(rows)} rows"
    return f"## {heading}\n\n{markdown(['dataset', *columns, 'lowest'], lines)}"


def _turns(found: list[dict[str, Any]]) -> str:
    """How the cells at equal time were run."""
    by_time = [cell for cell in found if cell["labels"]["regime"] not in (FITTED, STEPS)]
    alone = sum(not cell.get("conditions", {}).get("turns_with") for cell in by_time)
    if not alone:
        return "At equal time, the models of a dataset and seed took turns."
    return (
        f"At equal time, {alone} of {len(by_time)} trainings ran alone, one after another, so that what else the "
        "machine did was not shared evenly."
    )


def _rows(
    found: list[dict[str, Any]], quantity: str, regime: str, columns: list[str], *, early: bool
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """A line per dataset that has a network in that regime, and how often each of our models is lowest."""
    rows: list[dict[str, Any]] = []
    wins: dict[str, int] = dict.fromkeys(OURS, 0)
    for dataset in dict.fromkeys(cell["labels"]["dataset"] for cell in found):
        models, tested_on = {}, set()
        for model in (*columns, "mlp@100"):
            place = dataset, model, FITTED if model in REGRESSIONS else regime
            chosen = [c for c in found if tuple(c["labels"][n] for n in ("dataset", "model", "regime")) == place]
            if chosen:
                values = [_early_error(cell) if early else error_of(cell, quantity) for cell in chosen]
                tested_on |= {_data_of(cell) for cell in chosen} - {None}
                models[model] = interval(values) | {"raw": [error_of(cell, quantity, "raw") for cell in chosen]}
        compared = {name: models[name]["mean"] for name in columns if name in models}
        if not set(compared) - set(REGRESSIONS):
            continue
        best = min(compared, key=lambda name: compared[name])
        if best in wins:
            wins[best] += 1
        level = [name for name in compared if name != best and compared[name] <= LEVEL * compared[best]]
        text = best + (f" (level: {', '.join(level)})" if level else "")
        rows.append({"dataset": dataset, "models": models, "best": text, "mixed": len(tested_on) > 1})
    return rows, wins


def _data_of(cell: dict[str, Any]) -> float | None:
    """What tells a cell's data from other data: the error of predicting no change; None where it diverged."""
    error = cell["error"]
    return None if error is None else float(f"{error['baselines']['constant']['state']['normalised']:.4g}")


def _early_error(cell: dict[str, Any]) -> float:
    """The state error over the first steps, infinite where the cell diverged."""
    if not np.isfinite(error_of(cell, "state")):
        return float("inf")
    return float(np.mean(cell["error"]["state"]["per_step"][:EARLY]))


def figure(found: list[dict[str, Any]]) -> Figure:
    """State error against the step, one panel per dataset, at the longest training time that it has; seeds averaged."""
    datasets = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    drawn = Figure(figsize=(4.2 * columns, 3.1 * rows + 0.4), layout="constrained")
    panels = drawn.subplots(rows, columns, squeeze=False).ravel()
    for panel, dataset in zip(panels, datasets, strict=False):
        own = [cell for cell in found if cell["labels"]["dataset"] == dataset and np.isfinite(error_of(cell, "state"))]
        regime = _longest(own)
        for model, (colour, line, _) in STYLES.items():
            curves = [
                cell["error"]["state"]["per_step"]
                for cell in own
                if cell["labels"]["regime"] in (FITTED, regime) and cell["labels"]["model"] == model
            ]
            if curves:
                steps = np.arange(1, len(curves[0]) + 1)
                panel.plot(steps, np.mean(curves, axis=0), color=colour, linestyle=line, label=model)
        time = "equal steps" if regime == STEPS else f"{regime.removesuffix('s')} seconds"
        panel.set(xscale="log", yscale="log", title=f"{dataset}, {time}", xlabel="step")
        panel.set_ylabel("state error (normalised)")
        panel.set_ylim(top=min(panel.get_ylim()[1], WORST_DRAWN))
        tidy(panel)
    for panel in panels[len(datasets) :]:
        panel.set_visible(False)
    handles = legend_of(panels, STYLES)
    drawn.legend(*handles, frameon=False, fontsize=9, loc="outside lower center", ncols=len(STYLES))
    return drawn


def _longest(cells: list[dict[str, Any]]) -> str:
    """The longest training time among them; equal steps where there is none."""
    regimes = {cell["labels"]["regime"] for cell in cells} - {FITTED, STEPS}
    return max(regimes, key=lambda name: float(name.removesuffix("s")), default=STEPS)


def run(budget: PredictionBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is missing."""
    return run_grid(cells(budget), Testing(horizon=budget.horizon, windows=budget.windows), place)


EXPERIMENT = Experiment(name="prediction", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
