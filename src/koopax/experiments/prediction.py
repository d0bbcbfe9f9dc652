"""State and reward prediction over 100 steps: tables 1 and 2 of the paper.

Every model is trained twice: for the same time, where each takes its losses on as many steps of a window as pays for
it, and for the same number of gradient steps, where all take them on every step. Each is trained at the horizon that
suits it best: all at the full one, the MLP at 10 steps, as in the paper; a further arm, `mlp@100`, shows what becomes
of the MLP at the full horizon.
"""

from typing import Any

from koopax.experiments.budgets import Budget
from koopax.experiments.grid import Cell, error_of
from koopax.experiments.paper import DATASETS, MODELS, REWARD_ERROR, STATE_ERROR
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

MLP_HORIZON = 10
REGIMES = {"time": "equal training time", "steps": "equal gradient steps"}
# Levels are within this factor of each other.
LEVEL = 1.02


def cells(budget: Budget) -> list[Cell]:
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
    divergent = "koopax/halfcheetah/expert-v0"
    return [*found, _cell(divergent if divergent in datasets else datasets[0], "mlp@100", "time", 0, budget)]


def _cell(dataset: str, arm: str, regime: str, seed: int, budget: Budget) -> Cell:
    model = arm.split("@")[0]
    horizon = min(MLP_HORIZON, budget.horizon) if arm == "mlp" else budget.horizon
    by_time = regime == "time"
    train = TrainConfig(
        horizon=horizon,
        steps=None if by_time else budget.steps,
        seconds=budget.seconds if by_time else None,
        loss_stride=None if by_time else 1,
        batch_size=budget.batch_size,
        seed=seed,
        validation_horizon=budget.horizon,
        validate_every=500,
        validation_windows=min(256, budget.windows),
    )
    task = TrainTask(source=dataset, source_options={"steps": budget.data_steps}, model=model, train=train)
    short = dataset.removeprefix("koopax/").removesuffix("-v0")
    labels = {"dataset": short, "model": arm, "regime": regime, "seed": seed}
    return Cell(f"{short.replace('/', '-')}-{arm}-{regime}-{seed}", labels, task)


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Tables of state and reward errors by dataset and model, with the winner of each row, beside the paper's."""
    sections, document = [], {}
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
            heading = f"{quantity.capitalize()} error, {title}: Koopman is lowest in {wins} of {len(rows)} rows"
            sections.append(f"## {heading}\n\n{markdown(['dataset', *MODELS, 'lowest'], lines)}")
        names = [row["dataset"] for row in document.get(f"{quantity}-time", [])]
        lines = [
            [name, *(f"{mean:g} ± {std:g}" for mean, std in published[name])] for name in names if name in published
        ]
        note = "units not stated, D4RL v2 data: ratios compare, absolute values do not"
        sections.append(
            f"## {quantity.capitalize()} error in the paper ({note})\n\n{markdown(['dataset', *MODELS], lines)}"
        )
    return Summary("Prediction error over the horizon, normalised", sections, document)


def _rows(found: list[dict[str, Any]], quantity: str, regime: str) -> tuple[list[dict[str, Any]], int]:
    rows, wins = [], 0
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
        wins += best == "koopman"
        level = [name for name in compared if name != best and compared[name] <= LEVEL * compared[best]]
        text = best + (f" (level: {', '.join(level)})" if level else "")
        rows.append({"dataset": dataset, "models": models, "best": text})
    return rows, wins
