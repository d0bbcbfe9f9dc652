"""How the eigenvalues start, and whether their real part is learned: tables 4 to 6 of the paper.

Every arm is the published model, mirrored modes included, with another spectrum: the four of the paper's tables, the
other fixed μ that it names, other α of ω_j = αjπ, which it leaves open (its default is 1), and two spectra of ours,
which have no mirrored modes.
"""

from typing import Any

from koopax.experiments.ablation import AblationBudget, ablation_cell, arms_figure, run_ablation, summarise_arms
from koopax.experiments.experiment import Experiment
from koopax.experiments.grid import Cell
from koopax.experiments.paper import CONSISTENCY, INIT_ABLATION, PAPER_RATE
from koopax.experiments.summaries import Summary

MIRRORED = {"mirrored": True}
# name: (spectrum, its options, μ, ω), the last two as the table has them
ARMS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "paper": ("paper", MIRRORED, "−0.2", "jπ"),
    "paper-random": ("paper-random", MIRRORED, "−0.2", "random"),
    "paper-learnable": ("paper-learnable", MIRRORED, "learned", "jπ"),
    "paper-learnable-random": ("paper-learnable-random", MIRRORED, "learned", "random"),
    "paper-mu-0.1": ("paper", MIRRORED | {"decay": 0.1}, "−0.1", "jπ"),
    "paper-mu-0.3": ("paper", MIRRORED | {"decay": 0.3}, "−0.3", "jπ"),
    "paper-alpha-0.5": ("paper", MIRRORED | {"frequency_scale": 0.5}, "−0.2", "½jπ"),
    "paper-alpha-2": ("paper", MIRRORED | {"frequency_scale": 2.0}, "−0.2", "2jπ"),
    "unitary": ("unitary", {}, "0", "even in (0, π)"),
    "multiscale": ("multiscale", {}, "learned, all scales", "even in (0, π)"),
}
ENVIRONMENTS = ("halfcheetah", "walker2d", "hopper")
BUDGETS = {
    "smoke": AblationBudget(
        data_steps=4_000, steps=4, batch_size=4, horizon=10, windows=50, seeds=1, environments=("hopper",)
    ),
    "cpu": AblationBudget(
        data_steps=200_000, steps=500, batch_size=16, horizon=100, windows=2_000, seeds=1, environments=ENVIRONMENTS
    ),
    "paper": AblationBudget(
        data_steps=1_000_000,
        steps=100_000,
        batch_size=256,
        horizon=100,
        windows=50_000,
        seeds=3,
        environments=ENVIRONMENTS,
    ),
}
NOTE = (
    "The published model (`koopman-paper`) at the learning rate {rate:g}; `unitary` and `multiscale` without its "
    "mirrored modes. Errors are normalised. {consistency}"
)


def cells(budget: AblationBudget) -> list[Cell]:
    """Environments × seeds × arms."""
    return [
        ablation_cell(
            environment,
            arm,
            seed,
            budget,
            model="koopman-paper",
            options={"spectrum": spectrum, "spectrum_options": options},
            learning_rate=PAPER_RATE,
        )
        for environment in budget.environments
        for seed in range(budget.seeds)
        for arm, (spectrum, options, _, _) in ARMS.items()
    ]


def summarise(found: list[dict[str, Any]]) -> Summary:
    """State and reward error by spectrum, beside the paper's."""

    def published(environment: str, arm: str) -> list[str]:
        pair = INIT_ABLATION[environment].get(arm)
        return ["–", "–"] if pair is None else [f"{value:g}" for value in pair]

    return summarise_arms(
        "Prediction error by spectrum",
        found,
        columns=["spectrum", "μ", "ω"],
        describe=lambda arm: [arm, *ARMS[arm][2:]],
        published=published,
        published_columns=["paper: state", "paper: reward"],
        note=NOTE.format(rate=PAPER_RATE, consistency=CONSISTENCY),
    )


EXPERIMENT = Experiment(
    name="init-ablation",
    budgets=BUDGETS,
    run=lambda budget, place: run_ablation(cells(budget), budget, place),
    summarise=summarise,
    figure=arms_figure,
)
