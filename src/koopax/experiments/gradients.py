"""Gradient norms through time for each core, with the line that theorem 3.1 draws.

For freshly initialised models of equal size: |∂L_k/∂x_0| / |∂L_k/∂x_k| for a random linear functional L_k of the latent
k steps ahead, averaged over start states and actions of a real dataset. A Koopman core's line lies between exp(kΔtμ) of
its fastest and of its slowest mode, exactly on it where all decay alike; nothing bounds the others.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION, tidy
from koopax._provenance import provenance
from koopax.collection import load
from koopax.data.windows import fixed_windows
from koopax.evaluation.gradients import gradient_profile
from koopax.experiments.experiment import Experiment
from koopax.experiments.measurement import run_measurement
from koopax.experiments.summaries import Summary, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.presets import ONE_MEMBER

ARMS = {
    "koopman": ("koopman", ONE_MEMBER),
    "koopman, paper's spectrum": ("koopman", {**ONE_MEMBER, "spectrum": "paper"}),
    "koopman, unitary": ("koopman", {**ONE_MEMBER, "spectrum": "unitary"}),
    "mlp": ("mlp", {}),
    "gru": ("gru", {}),
    "transformer": ("transformer", {}),
    "dssm": ("dssm", {}),
}


@dataclass(frozen=True)
class GradientBudget:
    """The size of the measurement."""

    data_steps: int
    """Environment steps of the dataset."""
    horizon: int
    """Steps between loss and start, at most."""
    windows: int
    """Start states and action sequences that are averaged over, each with a functional of its own."""


BUDGETS = {
    "smoke": GradientBudget(data_steps=4_000, horizon=10, windows=2),
    "cpu": GradientBudget(data_steps=200_000, horizon=100, windows=8),
    "paper": GradientBudget(data_steps=1_000_000, horizon=100, windows=64),
}


def measure(budget: GradientBudget) -> dict[str, Any]:
    """The mean transfer at each step, by arm."""
    episodes = load("koopax/halfcheetah/expert-v0", steps=budget.data_steps)
    batch = next(iter(fixed_windows(episodes, budget.horizon, budget.windows, seed=0, batch_size=budget.windows)))
    found = {}
    for label, (name, options) in ARMS.items():
        model = DynamicsModel.create(name, episodes, key=jax.random.key(0), **options)

        @eqx.filter_jit
        def start_and_actions(model: DynamicsModel, state, actions):
            return model.encode(state), model.normaliser.normalise_action(actions)

        transfers = []
        for window in range(budget.windows):
            state, actions = batch.states[0, window], batch.actions[:, window]
            latent, inputs = start_and_actions(model, jnp.asarray(state), jnp.asarray(actions))
            transfers.append(gradient_profile(model.core, latent, inputs, key=jax.random.key(window)).transfer)
        found[label] = {"transfer": np.mean(transfers, axis=0).tolist(), "theorem": _theorem(model, budget.horizon)}
    return {"horizon": budget.horizon, "windows": budget.windows, "arms": found, **provenance()}


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


def figure(found: dict[str, Any]) -> Figure:
    """Gradient transfer against the step, with the theorem's lines."""
    drawn = Figure(figsize=(7, 4.4), layout="constrained")
    panel = drawn.subplots()
    colours = iter((BLUE, VERMILION, GREEN, INK, ORANGE, PURPLE, SKY))
    lines = iter(("-", "-", "-", ":", "--", "-.", (0, (5, 1, 1, 1, 1, 1))))
    for label, arm in found["arms"].items():
        colour = next(colours)
        steps = np.arange(1, len(arm["transfer"]) + 1)
        panel.plot(steps, arm["transfer"], color=colour, linestyle=next(lines), linewidth=2, label=label)
        if arm["theorem"] is not None and arm["theorem"]["slowest"] == arm["theorem"]["fastest"]:
            every = max(1, len(steps) // 12)
            theorem = np.asarray(arm["theorem"]["slowest"])
            panel.plot(steps[::every], theorem[::every], "o", color=colour, markerfacecolor="white")
    panel.plot([], [], "o", color=INK, markerfacecolor="white", label="theorem 3.1: exp(kΔtμ)")
    panel.set(yscale="log", xlabel="steps between loss and start", ylabel="|∂L/∂x₀| / |∂L/∂xₖ|")
    panel.set_ylim(max(1e-12, panel.get_ylim()[0]), panel.get_ylim()[1])
    panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return drawn


EXPERIMENT = Experiment(
    name="gradients",
    budgets=BUDGETS,
    run=lambda budget, place: run_measurement(measure, budget, place),
    summarise=summarise,
    figure=figure,
)
