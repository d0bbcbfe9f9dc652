"""The one comparison of predicted windows with what happened: validation, `koopax evaluate` and the report share it.

    e^s_k = (ŝ_{t+k} − s_{t+k})², k = 1 … T        per component, raw units
    e^r_k = (r̂_{t+k} − r_{t+k})², k = 0 … T−1

It knows nothing of means: who calls it reduces the errors over what it shows. The same errors of two predictors that
know nothing stand beside the model's: `constant` says that nothing changes, `mean` says the mean of the training data.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows, Windows, fixed_windows
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.models.dynamics import DynamicsModel, Prediction, Reencoding

BATCH = 500
"""Windows that are predicted at a time."""


class SquaredErrors(NamedTuple):
    """Squared errors of a batch of windows in raw units; infinite where the prediction is not finite."""

    state: Float[Array, "time batch state"]
    """Of s_{t+1} … s_{t+T}."""
    reward: Float[Array, "time batch"]
    """Of r_t … r_{t+T−1}."""


def choose_windows(
    episodes: Episodes, horizon: int, *, count: int = WINDOWS, seed: int = SEED, batch_size: int = BATCH
) -> FixedWindows:
    """The windows that models are tested on: the same for every model, in the terminal and in the report."""
    return fixed_windows(episodes, horizon, count, seed, batch_size=batch_size)


def predict_windows(model: DynamicsModel, windows: Windows, *, reencode_every: Reencoding = None) -> Prediction:
    """Roll every window out from its first state: states [time, batch, state], rewards [time, batch]."""

    def rollout(state: Array, actions: Array, durations: Array | None) -> Prediction:
        return model.rollout(state, actions, durations=durations, reencode_every=reencode_every)

    over_batch = None if windows.durations is None else 1
    in_axes = (0, 1, over_batch)
    return jax.vmap(rollout, in_axes, out_axes=1)(windows.states[0], windows.actions, windows.durations)


def squared_errors(
    model: DynamicsModel, windows: Windows, *, reencode_every: Reencoding = None
) -> dict[str, SquaredErrors]:
    """The errors of the model (`model`) and of the reference predictors (`constant`, `mean`) on a batch of windows.

    `constant` predicts the start state, and the first reward as if it were known, so that its reward error at the first
    step is 0. Inside a compiled function, what the caller does not use is not computed.
    """
    predicted = predict_windows(model, windows, reencode_every=reencode_every)
    mean = model.normaliser
    predictions = {
        "model": (predicted.states, predicted.rewards),
        "constant": (windows.states[:1], windows.rewards[:1]),
        "mean": (mean.state_mean, mean.reward_mean),
    }
    return {
        name: SquaredErrors(_squared(states, windows.states[1:]), _squared(rewards, windows.rewards))
        for name, (states, rewards) in predictions.items()
    }


def _squared(predicted: Array, true: Array) -> Array:
    squared = jnp.broadcast_to((predicted - true) ** 2, true.shape)
    return jnp.where(jnp.isnan(squared), jnp.inf, squared)
