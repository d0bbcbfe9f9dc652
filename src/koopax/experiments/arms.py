"""Arms that differ from a default in what their names say, judged on validation episodes at equal training time.

The test split has no part in it: what is found here may become a default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, legend_of, tidy
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.prediction import EARLY
from koopax.experiments.search import KOOPMAN_MODEL, KOOPMAN_TRAINING, at_equal_time
from koopax.experiments.summaries import Summary, markdown
from koopax.models.presets import PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

Arms = Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]]
"""By name: the preset, options of the model, settings of training."""
KOOPMAN_COLOURS = (INK, SKY, ORANGE, BLUE, GREEN, PURPLE, GREY)
BASELINE_LINES = ("-", "--", ":", "-.", (0, (6, 1)), (0, (1, 2)))


@dataclass(frozen=True)
class ArmsBudget:
    """The size of the search."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time of every arm."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Validation windows."""
    datasets: tuple[str, ...]
    """Which sets, by the names that koopax has for them."""
    batch_size: int = 16
    """Windows in a batch."""


def arms_experiment(name: str, title: str, arms: Arms, budgets: Mapping[str, ArmsBudget]) -> Experiment:
    """The experiment of that name: every arm on every dataset of the budget."""

    def run(budget: ArmsBudget, place: Place) -> list[dict[str, Any]]:
        testing = Testing(horizon=budget.horizon, windows=budget.windows, split="validation")
        return run_grid(cells(arms, budget), testing, place)

    return Experiment(name=name, budgets=budgets, run=run, summarise=summariser(title), figure=drawer(arms))


def cells(arms: Arms, budget: ArmsBudget) -> list[Cell]:
    """Every arm on one dataset after the other; those of a dataset take turns."""
    return [_cell(dataset, arm, *arms[arm], budget) for dataset in budget.datasets for arm in arms]


def _cell(
    dataset: str, arm: str, model: str, options: dict[str, Any], settings: dict[str, Any], budget: ArmsBudget
) -> Cell:
    # Written out, so that the arms stay what they were when the defaults change.
    fixed = (KOOPMAN_MODEL, KOOPMAN_TRAINING) if model == "koopman" else ({}, {})
    shared = at_equal_time(model, budget.seconds, budget.horizon, budget.windows)
    defaults = {**shared, **PLAIN_TRAINING, "batch_size": budget.batch_size}
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


def summariser(title: str) -> Callable[[list[dict[str, Any]]], Summary]:
    """For each dataset and arm the errors of all steps, of the first ones and of rewards, and the steps it took."""

    def summarise(found: list[dict[str, Any]]) -> Summary:
        sections, document = [], {}
        for dataset in dict.fromkeys(cell["labels"]["dataset"] for cell in found):
            lines = []
            for cell in (cell for cell in found if cell["labels"]["dataset"] == dataset):
                told = {
                    "state": error_of(cell, "state"),
                    "first_steps": first_steps_error(cell),
                    "reward": error_of(cell, "reward"),
                }
                document.setdefault(dataset, {})[cell["labels"]["arm"]] = told
                lines.append([cell["labels"]["arm"], *(f"{value:.4f}" for value in told.values()), str(cell["step"])])
            header = ["arm", "state", f"state, steps 1 to {EARLY}", "reward", "gradient steps"]
            sections.append(f"{dataset}:\n\n" + markdown(header, lines))
        return Summary(title, sections, document)

    return summarise


def drawer(arms: Arms) -> Callable[[list[dict[str, Any]]], Figure]:
    """State error at every step, one panel per dataset."""
    ours = [name for name, (model, *_) in arms.items() if model == "koopman"]
    others = [name for name in arms if name not in ours]
    told_apart = ((colour, line) for line in ("-", "--") for colour in KOOPMAN_COLOURS)
    styles = dict(zip(ours, told_apart, strict=False))
    styles |= dict(zip(others, ((VERMILION, line) for line in BASELINE_LINES), strict=False))

    def figure(found: list[dict[str, Any]]) -> Figure:
        datasets = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
        drawn = Figure(figsize=(max(4.6 * len(datasets), 9), 4.6), layout="constrained")
        panels = drawn.subplots(1, len(datasets), squeeze=False)[0]
        for panel, dataset in zip(panels, datasets, strict=True):
            for arm, (colour, line) in styles.items():
                for cell in found:
                    if cell["labels"] == {"dataset": dataset, "arm": arm} and cell["error"] is not None:
                        errors = np.array(cell["error"]["state"]["per_step"], float)
                        panel.plot(range(1, len(errors) + 1), errors, color=colour, linestyle=line, label=arm)
            panel.set(title=dataset, xscale="log", yscale="log", xlabel="step", ylabel="state error (normalised)")
            tidy(panel)
        handles = legend_of(panels, styles)
        drawn.legend(*handles, frameon=False, fontsize=8, loc="outside lower center", ncols=2 + len(datasets))
        return drawn

    return figure
