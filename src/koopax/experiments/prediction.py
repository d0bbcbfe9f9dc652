"""State and reward prediction over 100 steps: tables 1 and 2 of the paper.

Every model is trained twice: for the same time, where each takes its losses on as many steps of a window as pays for
it, and for the same number of gradient steps, where all take them on every step. At equal time, the models of a dataset
and seed take turns in slices of some seconds, so that whatever else the machine does is shared among them. Each is
trained at the horizon that suits it best: all at the full one, the MLP at 10 steps, as in the paper; a further arm,
`mlp@100`, trains the MLP at the full horizon, where it gets through a tenth of the steps in the same time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import tidy
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.paper import DATASETS, MODELS, PAPER_RATE, PUBLISHED_MODELS, REWARD_ERROR, STATE_ERROR
from koopax.experiments.styles import STYLES
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

MLP_HORIZON = 10
REGIMES = {"time": "equal training time", "steps": "equal gradient steps"}
# Levels are within this factor of each other.
LEVEL = 1.02
OURS = ("koopman", "koopman-paper")
NOTE = (
    "`koopman` is koopax's own model: a multiscale spectrum, actions remembered by the latent, other widths. "
    "`koopman-paper` is the published one: its spectrum, mirrored modes, input scale and widths, at the learning rate "
    "{rate:g}. In both the consistency loss is a mean over the components of the latent with the weight 0.001, where "
    "the paper has a sum over 512 with that weight. {turns}"
)


@dataclass(frozen=True)
class PredictionBudget:
    """The size of the prediction experiment."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time where models are compared at equal time."""
    steps: int
    """Gradient steps where models are compared at equal steps."""
    batch_size: int
    """Windows in a batch."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Test windows."""
    seeds: int
    """Seeds on the expert sets at equal time."""
    other_seeds: int
    """Seeds on the other sets, and at equal steps."""
    datasets: int = 9
    """How many of the nine datasets, experts first."""


BUDGETS = {
    "smoke": PredictionBudget(
        data_steps=4_000,
        seconds=2.0,
        steps=4,
        batch_size=4,
        horizon=10,
        windows=50,
        seeds=1,
        other_seeds=1,
        datasets=1,
    ),
    "cpu": PredictionBudget(
        data_steps=200_000,
        seconds=30.0,
        steps=200,
        batch_size=16,
        horizon=100,
        windows=2_000,
        seeds=3,
        other_seeds=1,
    ),
    "paper": PredictionBudget(
        data_steps=1_000_000,
        seconds=7_200.0,
        steps=100_000,
        batch_size=256,
        horizon=100,
        windows=50_000,
        seeds=3,
        other_seeds=3,
    ),
}


def cells(budget: PredictionBudget) -> list[Cell]:
    """Datasets × regimes × models, experts first, then their further seeds: an early stop leaves whole rows."""
    datasets = sorted(DATASETS, key=lambda name: "/expert" not in name)[: budget.datasets]
    found = [
        _cell(dataset, model, regime, seed, budget)
        for dataset in datasets
        for regime in REGIMES
        for seed in range(budget.other_seeds)
        for model in MODELS
    ]
    found += [
        _cell(dataset, model, "time", seed, budget)
        for seed in range(budget.other_seeds, budget.seeds)
        for dataset in datasets
        if "/expert" in dataset
        for model in MODELS
    ]
    undertrained = "koopax/halfcheetah/expert-v0"
    return [*found, _cell(undertrained if undertrained in datasets else datasets[0], "mlp@100", "time", 0, budget)]


def _cell(dataset: str, arm: str, regime: str, seed: int, budget: PredictionBudget) -> Cell:
    model = arm.split("@")[0]
    horizon = min(MLP_HORIZON, budget.horizon) if arm == "mlp" else budget.horizon
    by_time = regime == "time"
    train = TrainConfig(
        horizon=horizon,
        reencode_every="never",
        steps=None if by_time else budget.steps,
        seconds=budget.seconds if by_time else None,
        loss_stride=None if by_time else 1,
        learning_rate=PAPER_RATE if model == "koopman-paper" else None,
        batch_size=budget.batch_size,
        seed=seed,
        validation_horizon=budget.horizon,
        validate_every=500,
        validation_windows=min(256, budget.windows),
    )
    task = TrainTask(source=dataset, source_options={"steps": budget.data_steps}, model=model, train=train)
    short = dataset.removeprefix("koopax/").removesuffix("-v0")
    labels = {"dataset": short, "model": arm, "regime": regime, "seed": seed}
    group = f"{short}-{seed}" if by_time else None
    return Cell(f"{short.replace('/', '-')}-{arm}-{regime}-{seed}", labels, task, group)


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Tables of state and reward errors by dataset and model, with the winner of each row, beside the paper's."""
    sections, document = [NOTE.format(rate=PAPER_RATE, turns=_turns(found))], {}
    for quantity, published in (("state", STATE_ERROR), ("reward", REWARD_ERROR)):
        for regime, title in REGIMES.items():
            rows, wins = _rows(found, quantity, regime)
            if not rows:
                continue
            document[f"{quantity}-{regime}"] = rows
            lines = [
                [row["dataset"], *(row["models"].get(m, {}).get("text", "–") for m in MODELS), row["best"]]
                for row in rows
            ]
            measured = [name for name in OURS if any(name in row["models"] for row in rows)]
            lowest = ", ".join(f"`{name}` lowest in {wins[name]}" for name in measured) or "lowest"
            heading = f"{quantity.capitalize()} error, {title}: {lowest} of {len(rows)} rows"
            sections.append(f"## {heading}\n\n{markdown(['dataset', *MODELS, 'lowest'], lines)}")
        names = [row["dataset"] for row in document.get(f"{quantity}-time", [])]
        lines = [
            [name, *(f"{mean:g} ± {std:g}" for mean, std in published[name])] for name in names if name in published
        ]
        note = "units not stated, D4RL v2 data: ratios compare, absolute values do not"
        table = markdown(["dataset", *PUBLISHED_MODELS], lines)
        sections.append(f"## {quantity.capitalize()} error in the paper ({note})\n\n{table}")
    return Summary("Prediction error over the horizon, normalised", sections, document)


def _turns(found: list[dict[str, Any]]) -> str:
    """How the cells at equal time were run."""
    timed = [cell for cell in found if cell["labels"]["regime"] == "time"]
    alone = sum(not cell.get("conditions", {}).get("turns_with") for cell in timed)
    if not alone:
        return "At equal time, the models of a dataset and seed took turns."
    return (
        f"At equal time, {alone} of {len(timed)} trainings ran alone, one after another, so that what else the machine "
        "did was not shared evenly."
    )


def _rows(found: list[dict[str, Any]], quantity: str, regime: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    rows: list[dict[str, Any]] = []
    wins: dict[str, int] = dict.fromkeys(OURS, 0)
    datasets = dict.fromkeys(cell["labels"]["dataset"] for cell in found)
    for dataset in datasets:
        models = {}
        for model in (*MODELS, "mlp@100"):
            chosen = [
                cell
                for cell in found
                if (cell["labels"]["dataset"], cell["labels"]["model"], cell["labels"]["regime"])
                == (dataset, model, regime)
            ]
            if chosen:
                values = [error_of(cell, quantity) for cell in chosen]
                models[model] = interval(values) | {"raw": [error_of(cell, quantity, "raw") for cell in chosen]}
        compared = {name: models[name]["mean"] for name in MODELS if name in models}
        if not compared:
            continue
        best = min(compared, key=lambda name: compared[name])
        if best in wins:
            wins[best] += 1
        level = [name for name in compared if name != best and compared[name] <= LEVEL * compared[best]]
        text = best + (f" (level: {', '.join(level)})" if level else "")
        rows.append({"dataset": dataset, "models": models, "best": text})
    return rows, wins


def figure(found: list[dict[str, Any]]) -> Figure:
    """State error against the step, one panel per dataset, at equal training time; seeds averaged."""
    datasets = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
    chosen = [cell for cell in found if cell["labels"]["regime"] == "time" and np.isfinite(error_of(cell, "state"))]
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    drawn = Figure(figsize=(4.2 * columns, 3.1 * rows), layout="constrained")
    panels = drawn.subplots(rows, columns, squeeze=False).ravel()
    for panel, dataset in zip(panels, datasets, strict=False):
        for model, (colour, line, _) in STYLES.items():
            curves = [
                cell["error"]["state"]["per_step"]
                for cell in chosen
                if cell["labels"]["dataset"] == dataset and cell["labels"]["model"] == model
            ]
            if curves:
                steps = np.arange(1, len(curves[0]) + 1)
                panel.plot(steps, np.mean(curves, axis=0), color=colour, linestyle=line, label=model)
        panel.set(yscale="log", title=dataset, xlabel="step", ylabel="state error (normalised)")
        tidy(panel)
    for panel in panels[len(datasets) :]:
        panel.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    return drawn


def run(budget: PredictionBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is missing."""
    return run_grid(cells(budget), Testing(horizon=budget.horizon, windows=budget.windows), place)


EXPERIMENT = Experiment(name="prediction", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
