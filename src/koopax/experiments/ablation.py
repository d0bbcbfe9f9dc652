"""What the two ablations share: arms of the Koopman model on expert sets, at equal gradient steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, tidy
from koopax.experiments.experiment import Place
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.models.presets import PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask


@dataclass(frozen=True)
class AblationBudget:
    """The size of an ablation."""

    data_steps: int
    """Environment steps of each dataset."""
    steps: int
    """Gradient steps of every cell."""
    batch_size: int
    """Windows in a batch."""
    horizon: int
    """Steps to train on and to predict."""
    windows: int
    """Test windows."""
    seeds: int
    """Trainings of every arm."""
    environments: tuple[str, ...]
    """Environments whose expert sets are used."""


def ablation_cell(
    environment: str,
    arm: str,
    seed: int,
    budget: AblationBudget,
    *,
    model: str,
    options: Mapping[str, Any],
    learning_rate: float | None = None,
) -> Cell:
    """A training of one arm, with `options` where it differs from the preset `model`."""
    train = TrainConfig(
        horizon=budget.horizon,
        reencode_every="never",
        steps=budget.steps,
        learning_rate=learning_rate,
        **PLAIN_TRAINING,
        batch_size=budget.batch_size,
        seed=seed,
        validate_every=500,
        validation_windows=min(256, budget.windows),
    )
    task = TrainTask(
        source=f"koopax/{environment}/expert-v0",
        source_options={"steps": budget.data_steps},
        model=model,
        model_options=options,
        train=train,
    )
    return Cell(f"{environment}-{arm}-{seed}", {"environment": environment, "arm": arm, "seed": seed}, task)


def run_ablation(cells: list[Cell], budget: AblationBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is missing."""
    return run_grid(cells, Testing(horizon=budget.horizon, windows=budget.windows), place)


def summarise_arms(
    title: str,
    found: list[dict[str, Any]],
    *,
    columns: list[str],
    describe: Callable[[str], list[str]],
    published: Callable[[str, str], list[str]],
    published_columns: list[str],
    note: str,
) -> Summary:
    """State and reward error of every arm, a table per environment.

    `describe` gives an arm's cells under `columns`, and `published` what the paper has for an environment and an arm.
    """
    sections, document = [note], {}
    for environment in dict.fromkeys(cell["labels"]["environment"] for cell in found):
        mine = [cell for cell in found if cell["labels"]["environment"] == environment]
        rows, lines = [], []
        for arm in dict.fromkeys(cell["labels"]["arm"] for cell in mine):
            chosen = [cell for cell in mine if cell["labels"]["arm"] == arm]
            state, reward = (interval([error_of(cell, q) for cell in chosen]) for q in ("state", "reward"))
            rows.append({"arm": arm, "state": state, "reward": reward})
            lines.append([*describe(arm), state["text"], reward["text"], *published(environment, arm)])
        document[environment] = rows
        header = [*columns, "state", "reward", *published_columns]
        sections.append(f"## {environment}-expert\n\n{markdown(header, lines)}")
    return Summary(title, sections, document)


def arms_figure(found: list[dict[str, Any]]) -> Figure:
    """State error of each arm, one panel per environment; a point per seed and a bar at their mean."""
    environments = list(dict.fromkeys(cell["labels"]["environment"] for cell in found))
    figure = Figure(figsize=(5.5 * len(environments), 3.8), layout="constrained")
    for panel, environment in zip(figure.subplots(1, len(environments), squeeze=False)[0], environments, strict=True):
        mine = [c for c in found if c["labels"]["environment"] == environment and np.isfinite(error_of(c, "state"))]
        arms = list(dict.fromkeys(cell["labels"]["arm"] for cell in mine))
        for position, arm in enumerate(arms):
            values = [error_of(c, "state") for c in mine if c["labels"]["arm"] == arm]
            panel.scatter([position] * len(values), values, color=BLUE, zorder=3)
            panel.hlines(np.mean(values), position - 0.25, position + 0.25, color=INK)
        panel.set_xticks(range(len(arms)), arms, rotation=30, ha="right", fontsize=8)
        panel.set(title=f"{environment}-expert", ylabel="state error (normalised)", ylim=(0, None))
        tidy(panel)
    return figure
