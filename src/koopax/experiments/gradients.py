"""Gradient norms through time for each core, with the line that theorem 3.1 draws.

For freshly initialised models of equal size: |∂L_k/∂x_0| / |∂L_k/∂x_k| for a loss k steps ahead, averaged over start
states and actions of a real dataset. A Koopman core's line lies between exp(kΔtμ) of its fastest and of its slowest
mode, exactly on it where all decay alike; nothing bounds the others.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._provenance import provenance
from koopax.collection import load
from koopax.data.windows import fixed_windows
from koopax.evaluation.gradients import gradient_profile
from koopax.experiments.budgets import Budget
from koopax.experiments.summaries import Summary, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore

ARMS = {
    "koopman": ("koopman", {}),
    "koopman, paper's spectrum": ("koopman", {"spectrum": "paper"}),
    "koopman, unitary": ("koopman", {"spectrum": "unitary"}),
    "mlp": ("mlp", {}),
    "gru": ("gru", {}),
    "transformer": ("transformer", {}),
    "dssm": ("dssm", {}),
}
WINDOWS = 4


def measure(budget: Budget) -> dict[str, Any]:
    """The mean transfer at each step, by arm."""
    episodes = load("koopax/halfcheetah/expert-v0", steps=budget.data_steps)
    batch = next(iter(fixed_windows(episodes, budget.horizon, WINDOWS, seed=0, batch_size=WINDOWS)))
    found = {}
    for label, (name, options) in ARMS.items():
        model = DynamicsModel.create(name, episodes, key=jax.random.key(0), **options)

        @eqx.filter_jit
        def start_and_actions(model: DynamicsModel, state, actions):
            return model.encode(state), model.normaliser.normalise_action(actions)

        transfers = []
        for window in range(WINDOWS):
            state, actions = batch.states[0, window], batch.actions[:, window]
            latent, inputs = start_and_actions(model, jnp.asarray(state), jnp.asarray(actions))
            transfers.append(gradient_profile(model.core, latent, inputs, key=jax.random.key(window)).transfer)
        found[label] = {"transfer": np.mean(transfers, axis=0).tolist(), "theorem": _theorem(model, budget.horizon)}
    return {"horizon": budget.horizon, "windows": WINDOWS, "arms": found, **provenance()}


def _theorem(model: DynamicsModel, horizon: int) -> dict[str, list[float]] | None:
    """exp(kΔtμ) of the slowest and the fastest mode."""
    if not isinstance(model.core, KoopmanCore):
        return None
    rates = np.asarray(model.core.spectrum.rates()[0] * model.core.spectrum.time_step(), np.float64)
    steps = np.arange(1, horizon + 1)
    return {"slowest": np.exp(steps * rates.max()).tolist(), "fastest": np.exp(steps * rates.min()).tolist()}


def summarise(found: dict[str, Any]) -> Summary:
    """The transfer at some steps."""
    horizon = found["horizon"]
    steps = sorted({1, max(1, horizon // 10), horizon // 2, horizon})
    rows = [[label, *(f"{arm['transfer'][step - 1]:.3g}" for step in steps)] for label, arm in found["arms"].items()]
    table = markdown(["core", *(f"step {step}" for step in steps)], rows)
    return Summary("Gradient through time: |∂L_k/∂x_0| / |∂L_k/∂x_k| at initialisation", [table], found)
