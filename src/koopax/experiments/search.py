"""The recorded search for the defaults: variations of the Koopman model, and learning rates of every model.

Everything is judged on the validation split of expert sets (the budget says of which environments), at equal training
time; the test split is left for the tables. A variation differs from the default in what its name says.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, ORANGE, tidy
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.prediction import MLP_HORIZON
from koopax.experiments.summaries import Summary, markdown
from koopax.models.presets import ONE_MEMBER, PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

# Where the search stands; every arm but the first differs from it in what its name says. Written out, so that arms
# stay what they were when the defaults change.
KOOPMAN_MODEL = dict(ONE_MEMBER)
KOOPMAN_TRAINING = {
    "learning_rate": 8e-3,
    "loss_stride": 10,
    "batch_size": 16,
    "consistency_weight": 0.001,
    **PLAIN_TRAINING,
}
BASELINE_TRAINING = {"loss_stride": 10, "batch_size": 16, **PLAIN_TRAINING}

# name: (options of the model, settings of training)
KOOPMAN_ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "koopman": ({}, {}),
    "koopman history 1": ({"action_history": 1}, {}),
    "koopman history 8": ({"action_history": 8}, {}),
    "koopman lr 5e-3": ({}, {"learning_rate": 5e-3}),
    "koopman lr 12e-3": ({}, {"learning_rate": 12e-3}),
    "koopman batch 8": ({}, {"batch_size": 8}),
    "koopman stride 5": ({}, {"loss_stride": 5}),
    "koopman stride 20": ({}, {"loss_stride": 20}),
    "koopman input scale x3": ({"input_std": 3 * (2 * 16) ** -0.5}, {}),
    "koopman spectrum paper": ({"spectrum": "paper"}, {}),
    "koopman one decoder layer, large encoder": (
        {"decoder_hidden": (256,), "encoder_hidden": (640,), "activation": "relu"},
        {},
    ),
}
BASELINE_ARMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mlp lr 5e-4": ("mlp", {}, {"learning_rate": 5e-4, "loss_stride": 1}),
    "mlp lr 1e-3": ("mlp", {}, {"learning_rate": 1e-3, "loss_stride": 1}),
    "mlp lr 2e-3": ("mlp", {}, {"learning_rate": 2e-3, "loss_stride": 1}),
    "mlp lr 4e-3": ("mlp", {}, {"learning_rate": 4e-3, "loss_stride": 1}),
    "gru lr 3e-3": ("gru", {}, {"learning_rate": 3e-3}),
    "gru lr 6e-3": ("gru", {}, {"learning_rate": 6e-3}),
    "gru lr 12e-3": ("gru", {}, {"learning_rate": 12e-3}),
    "transformer lr 1e-3": ("transformer", {}, {"learning_rate": 1e-3}),
    "transformer lr 3e-3": ("transformer", {}, {"learning_rate": 3e-3}),
    "transformer lr 6e-3": ("transformer", {}, {"learning_rate": 6e-3}),
    "dssm lr 1e-3": ("dssm", {}, {"learning_rate": 1e-3}),
    "dssm lr 3e-3": ("dssm", {}, {"learning_rate": 3e-3}),
    "dssm lr 6e-3": ("dssm", {}, {"learning_rate": 6e-3}),
}
ARMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    name: ("koopman", KOOPMAN_MODEL | model, KOOPMAN_TRAINING | training)
    for name, (model, training) in KOOPMAN_ARMS.items()
} | {name: (preset, model, BASELINE_TRAINING | training) for name, (preset, model, training) in BASELINE_ARMS.items()}


@dataclass(frozen=True)
class SearchBudget:
    """The size of the search."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time of every arm."""
    horizon: int
    """Steps to train on, the MLP excepted, and to predict."""
    windows: int
    """Validation windows."""
    environments: tuple[str, ...]
    """Environments whose expert sets are used."""


BUDGETS = {
    "smoke": SearchBudget(data_steps=4_000, seconds=2.0, horizon=10, windows=50, environments=("hopper",)),
    "cpu": SearchBudget(data_steps=200_000, seconds=30.0, horizon=100, windows=2_000, environments=("halfcheetah",)),
    "paper": SearchBudget(
        data_steps=1_000_000,
        seconds=1_800.0,
        horizon=100,
        windows=50_000,
        environments=("halfcheetah", "walker2d", "hopper"),
    ),
}


def cells(budget: SearchBudget) -> list[Cell]:
    """Every arm on the expert sets that the budget has room for, one environment after the other."""
    return [_cell(environment, arm, budget) for environment in budget.environments for arm in ARMS]


def at_equal_time(model: str, seconds: float, horizon: int, windows: int) -> dict[str, Any]:
    """Settings of training that all arms of a search share."""
    return {
        "horizon": min(MLP_HORIZON, horizon) if model == "mlp" else horizon,
        "reencode_every": "never",
        "seconds": seconds,
        "validation_horizon": horizon,
        "validate_every": 500,
        "validation_windows": min(256, windows),
    }


def _cell(environment: str, arm: str, budget: SearchBudget) -> Cell:
    model, options, settings = ARMS[arm]
    defaults = at_equal_time(model, budget.seconds, budget.horizon, budget.windows)
    task = TrainTask(
        source=f"koopax/{environment}/expert-v0",
        source_options={"steps": budget.data_steps},
        model=model,
        model_options=options,
        train=TrainConfig(**(defaults | settings)),
    )
    name = f"{environment}-{arm}".replace(" ", "-").replace(",", "")
    return Cell(name, {"environment": environment, "arm": arm}, task, group=environment)


def summarise(found: list[dict[str, Any]]) -> Summary:
    """State and reward error of every arm on each validation split, and the steps that it took in the time."""
    environments = list(dict.fromkeys(cell["labels"]["environment"] for cell in found))
    by_place = {(cell["labels"]["arm"], cell["labels"]["environment"]): cell for cell in found}
    lines, document = [], {}
    for arm in dict.fromkeys(cell["labels"]["arm"] for cell in found):
        line, values = [arm], {}
        for environment in environments:
            cell = by_place.get((arm, environment))
            if cell is None or not math.isfinite(error_of(cell, "state")):
                line.append("–" if cell is None else "diverged")
                continue
            state, reward = error_of(cell, "state"), error_of(cell, "reward")
            line.append(f"{state:.4f} / {reward:.4f} ({cell['step']} steps)")
            values[environment] = {"state": state, "reward": reward, "step": cell["step"]}
        lines.append(line)
        document[arm] = values
    table = markdown(["arm", *(f"{environment}: state / reward" for environment in environments)], lines)
    return Summary("The search for the defaults: validation error at equal time", [table], document)


def figure(found: list[dict[str, Any]]) -> Figure:
    """State error of every arm, a marker per environment, best on top."""
    drawn = Figure(figsize=(7, 6), layout="constrained")
    panel = drawn.subplots()
    values: dict[str, dict[str, float]] = {}
    for cell in found:
        values.setdefault(cell["labels"]["arm"], {})[cell["labels"]["environment"]] = error_of(cell, "state")
    order = sorted(values, key=lambda arm: -np.mean(np.log(list(values[arm].values()))))
    environments = list(dict.fromkeys(cell["labels"]["environment"] for cell in found))
    for environment, colour, marker in zip(environments, (BLUE, ORANGE, GREEN), ("o", "s", "D"), strict=False):
        points = [values[arm].get(environment, np.nan) for arm in order]
        panel.scatter(points, range(len(order)), color=colour, marker=marker, label=environment)
    panel.set_yticks(range(len(order)), order, fontsize=8)
    panel.set(xscale="log", xlabel="state error on the validation split (normalised)")
    panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return drawn


def run(budget: SearchBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is missing; the test split has no part in it."""
    testing = Testing(horizon=budget.horizon, windows=budget.windows, split="validation")
    return run_grid(cells(budget), testing, place)


EXPERIMENT = Experiment(name="search", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
