"""The recorded search for what serves the first steps: losses on them after more starts, and weight decay.

Judged like `koopax.experiments.search`, on validation episodes at equal training time, but on one set of each robot, of
which two are broad, and with the error of steps 1 to 10 beside that of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, INK, ORANGE, SKY, VERMILION, tidy
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.prediction import EARLY
from koopax.experiments.search import KOOPMAN_MODEL, KOOPMAN_TRAINING, at_equal_time
from koopax.experiments.summaries import Summary, markdown
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

DECAY = {"weight_decay": 0.03}
# name: (preset, options of the model, settings of training)
ARMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "koopman": ("koopman", {}, {}),
    "koopman, first steps 0.3": ("koopman", {}, {"early_weight": 0.3}),
    "koopman, decay": ("koopman", {}, DECAY),
    "koopman, decay, first steps 0.3": ("koopman", {}, DECAY | {"early_weight": 0.3}),
    "koopman, decay, first steps 0.6": ("koopman", {}, DECAY | {"early_weight": 0.6}),
    "mlp": ("mlp", {}, {}),
    "gru": ("gru", {}, {}),
    "gru, first steps 0.3": ("gru", {}, {"early_weight": 0.3}),
}
COLOURS = (INK, SKY, ORANGE, BLUE, GREEN, VERMILION, VERMILION, VERMILION)
LINES = ("-", "-", "-", "-", "-", "-", "--", ":")
DATASETS = ("halfcheetah/full-replay", "walker2d/expert", "hopper/full-replay")


@dataclass(frozen=True)
class FirstStepsBudget:
    """The size of the search."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time of every arm."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Validation windows."""
    batch_size: int = 16
    """Windows in a batch."""
    datasets: tuple[str, ...] = DATASETS
    """Which sets, by the names that koopax has for them."""


BUDGETS = {
    "smoke": FirstStepsBudget(
        data_steps=4_000, seconds=2.0, horizon=12, windows=50, batch_size=4, datasets=("hopper/full-replay",)
    ),
    "cpu": FirstStepsBudget(data_steps=200_000, seconds=30.0, horizon=100, windows=2_000),
    "paper": FirstStepsBudget(data_steps=1_000_000, seconds=1_800.0, horizon=100, windows=50_000, batch_size=256),
}


def cells(budget: FirstStepsBudget) -> list[Cell]:
    """Every arm on one dataset after the other; those of a dataset take turns."""
    return [_cell(dataset, arm, budget) for dataset in budget.datasets for arm in ARMS]


def _cell(dataset: str, arm: str, budget: FirstStepsBudget) -> Cell:
    model, options, settings = ARMS[arm]
    # Written out, so that the arms stay what they were when the defaults change.
    fixed = (KOOPMAN_MODEL | {"linear_paths": False}, KOOPMAN_TRAINING) if model == "koopman" else ({}, {})
    shared = at_equal_time(model, budget.seconds, budget.horizon, budget.windows)
    defaults = shared | {"early_weight": 0.0, "batch_size": budget.batch_size}
    task = TrainTask(
        source=f"koopax/{dataset}-v0",
        source_options={"steps": budget.data_steps},
        model=model,
        model_options=fixed[0] | options,
        train=TrainConfig(**(fixed[1] | defaults | settings)),
    )
    name = f"{dataset.replace('/', '-')}-{arm}".replace(" ", "-").replace(",", "")
    return Cell(name, {"dataset": dataset, "arm": arm}, task, group=dataset)


def first_steps_error(cell: dict[str, Any]) -> float:
    """The state error of steps 1 to 10, infinite where a cell diverged."""
    steps = None if cell["error"] is None else cell["error"]["state"]["per_step"][:EARLY]
    return float("inf") if steps is None or None in steps else float(np.mean(steps))


def summarise(found: list[dict[str, Any]]) -> Summary:
    """For each dataset and arm the errors of all steps, of the first ones and of rewards, and the steps it took."""
    sections, document = [], {}
    for dataset in dict.fromkeys(cell["labels"]["dataset"] for cell in found):
        lines = []
        for cell in found:
            if cell["labels"]["dataset"] == dataset:
                told = {
                    "state": error_of(cell, "state"),
                    "first_steps": first_steps_error(cell),
                    "reward": error_of(cell, "reward"),
                }
                document.setdefault(dataset, {})[cell["labels"]["arm"]] = told
                lines.append([cell["labels"]["arm"], *(f"{value:.4f}" for value in told.values()), str(cell["step"])])
        header = ["arm", "state", f"state, steps 1 to {EARLY}", "reward", "gradient steps"]
        sections.append(f"{dataset}:\n\n" + markdown(header, lines))
    return Summary("First steps: validation error at equal time", sections, document)


def run(budget: FirstStepsBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is missing; the test split has no part in it."""
    testing = Testing(horizon=budget.horizon, windows=budget.windows, split="validation")
    return run_grid(cells(budget), testing, place)


def figure(found: list[dict[str, Any]]) -> Figure:
    """State error at every step, one panel per dataset."""
    datasets = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
    drawn = Figure(figsize=(4.6 * len(datasets), 4.2), layout="constrained")
    panels = drawn.subplots(1, len(datasets), squeeze=False)[0]
    for panel, dataset in zip(panels, datasets, strict=True):
        for arm, colour, line in zip(ARMS, COLOURS, LINES, strict=True):
            for cell in found:
                if cell["labels"] == {"dataset": dataset, "arm": arm} and cell["error"] is not None:
                    errors = np.array(cell["error"]["state"]["per_step"], float)
                    panel.plot(range(1, len(errors) + 1), errors, color=colour, linestyle=line, label=arm)
        panel.set(title=dataset, xscale="log", yscale="log", xlabel="step", ylabel="state error (normalised)")
        tidy(panel)
    drawn.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4)
    return drawn


EXPERIMENT = Experiment(name="first-steps", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
