"""The recorded search for the defaults: variations of the Koopman model, and learning rates of every model.

Everything is judged on the validation split of the three expert sets, at equal training time; the test split is left
for the tables. A variation differs from the current default in one thing, which its name says.
"""

import math
from typing import Any

from koopax.experiments.budgets import Budget
from koopax.experiments.grid import Cell, error_of
from koopax.experiments.paper import ENVIRONMENTS
from koopax.experiments.prediction import MLP_HORIZON
from koopax.experiments.summaries import Summary, markdown
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

# name: (preset, options of the model, settings of training)
ARMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "koopman": ("koopman", {}, {}),
    "koopman lr 1e-3": ("koopman", {}, {"learning_rate": 1e-3}),
    "koopman lr 6e-3": ("koopman", {}, {"learning_rate": 6e-3}),
    "koopman batch 32": ("koopman", {}, {"batch_size": 32}),
    "koopman spectrum paper": ("koopman", {"spectrum": "paper"}, {}),
    "koopman spectrum lr ×0.3": ("koopman", {}, {"spectrum_learning_rate": 0.3}),
    "koopman spectrum lr ×3": ("koopman", {}, {"spectrum_learning_rate": 3.0}),
    "koopman own reward head": ("koopman", {"reward_hidden": (256,), "encoder_hidden": (384,)}, {}),
    "koopman decoder 128": ("koopman", {"decoder_hidden": (128,), "encoder_hidden": (768,)}, {}),
    "koopman embedding 64": ("koopman", {"action_embedding": 64, "action_hidden": (128,)}, {}),
    "koopman no consistency": ("koopman", {}, {"consistency_weight": 0.0}),
    "koopman all-step consistency": ("koopman", {}, {"consistency_steps": None}),
    "koopman-paper": ("koopman-paper", {}, {}),
    "mlp lr 1e-3": ("mlp", {}, {"learning_rate": 1e-3}),
    "mlp lr 3e-3": ("mlp", {}, {"learning_rate": 3e-3}),
    "gru lr 1e-3": ("gru", {}, {"learning_rate": 1e-3}),
    "gru lr 3e-3": ("gru", {}, {"learning_rate": 3e-3}),
    "gru lr 6e-3": ("gru", {}, {"learning_rate": 6e-3}),
    "transformer lr 3e-4": ("transformer", {}, {"learning_rate": 3e-4}),
    "transformer lr 1e-3": ("transformer", {}, {"learning_rate": 1e-3}),
    "transformer lr 3e-3": ("transformer", {}, {"learning_rate": 3e-3}),
    "dssm lr 1e-3": ("dssm", {}, {"learning_rate": 1e-3}),
    "dssm lr 3e-3": ("dssm", {}, {"learning_rate": 3e-3}),
    "dssm lr 6e-3": ("dssm", {}, {"learning_rate": 6e-3}),
}


def cells(budget: Budget) -> list[Cell]:
    """Every arm on every expert set, one environment after the other."""
    return [
        _cell(environment, arm, budget)
        for environment in ENVIRONMENTS[::-1][: 1 if budget.datasets == 1 else None]
        for arm in ARMS
    ]


def _cell(environment: str, arm: str, budget: Budget) -> Cell:
    model, options, settings = ARMS[arm]
    defaults = {
        "horizon": min(MLP_HORIZON, budget.horizon) if model == "mlp" else budget.horizon,
        "seconds": budget.seconds,
        "batch_size": budget.batch_size,
        "validation_horizon": budget.horizon,
        "validate_every": 100,
        "validation_windows": min(256, budget.windows),
    }
    task = TrainTask(
        source=f"koopax/{environment}/expert-v0",
        source_options={"steps": budget.data_steps},
        model=model,
        model_options=options,
        train=TrainConfig(**(defaults | settings)),
    )
    name = f"{environment}-{arm}".replace(" ", "-").replace("×", "x")
    return Cell(name, {"environment": environment, "arm": arm}, task)


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
