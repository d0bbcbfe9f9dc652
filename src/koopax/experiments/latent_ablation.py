"""How many eigenvalues there are: table 7 of the paper, with the default model; its other widths stay as they are."""

from dataclasses import dataclass
from typing import Any

from koopax.experiments.ablation import AblationBudget, ablation_cell, arms_figure, run_ablation, summarise_arms
from koopax.experiments.experiment import Experiment
from koopax.experiments.grid import Cell
from koopax.experiments.paper import LATENT_ABLATION
from koopax.experiments.summaries import Summary
from koopax.models.presets import ONE_MEMBER


@dataclass(frozen=True)
class LatentBudget(AblationBudget):
    """The size of the ablation of the latent."""

    latent_sizes: tuple[int, ...] = (128, 256, 512, 1024)
    """Widths of the latent."""


BUDGETS = {
    "smoke": LatentBudget(
        data_steps=4_000,
        steps=4,
        batch_size=4,
        horizon=10,
        windows=50,
        seeds=1,
        environments=("halfcheetah",),
        latent_sizes=(16, 32),
    ),
    "cpu": LatentBudget(
        data_steps=200_000, steps=500, batch_size=16, horizon=100, windows=2_000, seeds=1, environments=("halfcheetah",)
    ),
    "paper": LatentBudget(
        data_steps=1_000_000,
        steps=100_000,
        batch_size=256,
        horizon=100,
        windows=50_000,
        seeds=3,
        environments=("halfcheetah", "walker2d", "hopper"),
    ),
}
NOTE = "koopax's own model with one member and without a pilot, not the published one. Errors are normalised."


def cells(budget: LatentBudget) -> list[Cell]:
    """Environments × seeds × latent sizes."""
    return [
        ablation_cell(
            environment, str(size), seed, budget, model="koopman", options={**ONE_MEMBER, "latent_size": size}
        )
        for environment in budget.environments
        for seed in range(budget.seeds)
        for size in budget.latent_sizes
    ]


def summarise(found: list[dict[str, Any]]) -> Summary:
    """State and reward error by latent size, beside the paper's."""

    def published(environment: str, arm: str) -> list[str]:
        value = LATENT_ABLATION.get(int(arm)) if environment == "halfcheetah" else None
        return ["–" if value is None else f"{value:g}"]

    return summarise_arms(
        "Prediction error by latent size",
        found,
        columns=["latent size"],
        describe=lambda arm: [arm],
        published=published,
        published_columns=["paper: state"],
        note=NOTE,
    )


EXPERIMENT = Experiment(
    name="latent-ablation",
    budgets=BUDGETS,
    run=lambda budget, place: run_ablation(cells(budget), budget, place),
    summarise=summarise,
    figure=arms_figure,
)
