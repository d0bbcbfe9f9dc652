"""The paper's ablations of the Koopman model: how the eigenvalues start, and how many there are."""

from typing import Any

from koopax.experiments.budgets import Budget
from koopax.experiments.grid import Cell, error_of
from koopax.experiments.paper import INIT_ABLATION, LATENT_ABLATION
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.models.spectrum import SPECTRA
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

# Peak learning rate of the published model, which the paper leaves open; the default's is tuned to another spectrum.
PAPER_RATE = 3e-3


def _cell(
    environment: str,
    label: str,
    model: str,
    options: dict[str, Any],
    seed: int,
    budget: Budget,
    learning_rate: float | None = None,
) -> Cell:
    train = TrainConfig(
        horizon=budget.horizon,
        steps=budget.ablation_steps,
        learning_rate=learning_rate,
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
    labels = {"environment": environment, "arm": label, "seed": seed}
    return Cell(f"{environment}-{label}-{seed}", labels, task)


def init_cells(budget: Budget) -> list[Cell]:
    """Every spectrum in the published model, each mode with a frequency of its own."""
    return [
        _cell(
            environment,
            spectrum,
            "koopman-paper",
            {"spectrum": spectrum, "spectrum_options": {}},
            seed,
            budget,
            PAPER_RATE,
        )
        for environment in budget.ablation_environments
        for seed in range(budget.ablation_seeds)
        for spectrum in SPECTRA
    ]


def latent_cells(budget: Budget) -> list[Cell]:
    """Latent sizes of the default model; its other widths stay as they are."""
    return [
        _cell(environment, str(size), "koopman", {"latent_size": size}, seed, budget)
        for environment in budget.ablation_environments
        for seed in range(budget.ablation_seeds)
        for size in budget.latent_sizes
    ]


def summarise_init(found: list[dict[str, Any]]) -> Summary:
    """State and reward error by spectrum, beside the paper's."""

    def published(environment: str, arm: str) -> list[str]:
        pair = INIT_ABLATION[environment].get(arm)
        return ["–", "–"] if pair is None else [f"{value:g}" for value in pair]

    return _summary("Prediction error by spectrum", "spectrum", found, published, ["paper: state", "paper: reward"])


def summarise_latent(found: list[dict[str, Any]]) -> Summary:
    """State and reward error by latent size, beside the paper's."""

    def published(environment: str, arm: str) -> list[str]:
        value = LATENT_ABLATION.get(int(arm)) if environment == "halfcheetah" else None
        return ["–" if value is None else f"{value:g}"]

    return _summary("Prediction error by latent size", "latent size", found, published, ["paper: state"])


def _summary(title: str, column: str, found: list[dict[str, Any]], published, extra: list[str]) -> Summary:
    sections, document = [], {}
    for environment in dict.fromkeys(cell["labels"]["environment"] for cell in found):
        mine = [cell for cell in found if cell["labels"]["environment"] == environment]
        rows, lines = [], []
        for arm in dict.fromkeys(cell["labels"]["arm"] for cell in mine):
            chosen = [cell for cell in mine if cell["labels"]["arm"] == arm]
            state, reward = (interval([error_of(cell, q) for cell in chosen]) for q in ("state", "reward"))
            rows.append({"arm": arm, "state": state, "reward": reward})
            lines.append([arm, state["text"], reward["text"], *published(environment, arm)])
        document[environment] = rows
        header = [column, "state (normalised)", "reward (normalised)", *extra]
        sections.append(f"## {environment}-expert\n\n{markdown(header, lines)}")
    return Summary(title, sections, document)
