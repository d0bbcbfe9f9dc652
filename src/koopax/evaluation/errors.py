"""The one comparison of predicted windows with what happened: validation, `koopax evaluate` and the report share it.

    e^s_k = (ŝ_{t+k} − s_{t+k})², k = 1 … T        per component, raw units
    e^r_k = (r̂_{t+k} − r_{t+k})², k = 0 … T−1

It knows nothing of means: who calls it reduces the errors over what it shows. The same errors of two predictors that
know nothing stand beside the model's: `constant` says that nothing changes, `mean` says the mean of the training data.
"""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows, Windows, fixed_windows
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.models.dynamics import Reencoding
from koopax.models.ensemble import AnyModel
from koopax.models.prediction import Prediction

BATCH = 500
"""Windows that are predicted at a time."""


class SquaredErrors(NamedTuple):
    """Squared errors of a batch of windows in raw units; infinite where the prediction is not finite."""

    state: Float[Array, "time batch state"]
    """Of s_{t+1} … s_{t+T}."""
    reward: Float[Array, "time batch"]
    """Of r_t … r_{t+T−1}."""


def choose_windows(
    episodes: Episodes,
    horizon: int,
    *,
    count: int = WINDOWS,
    seed: int = SEED,
    batch_size: int = BATCH,
    models: Iterable[AnyModel] = (),
) -> FixedWindows:
    """The windows that models are tested on: the same for every model, in the terminal and in the report.

    They come with as many steps before them as one of the models makes use of.
    """
    past = max((model.past_steps for model in models), default=0)
    return fixed_windows(episodes, horizon, count, seed, batch_size=batch_size, past=past)


def predict_windows(
    model: AnyModel,
    windows: Windows,
    *,
    reencode_every: Reencoding = None,
    level: float | None = None,
    return_latents: bool = False,
) -> Prediction:
    """Roll every window out from its first state: states [time, batch, state], rewards [time, batch].

    A model with a history sees what came before; the windows must hold it (see `choose_windows`).
    """
    states, past_actions = windows.states[0], None
    if model.past_steps:
        states, past_actions = histories(model, windows)

    def rollout(state: Array, past: Array | None, actions: Array, durations: Array | None) -> Prediction:
        return model.rollout(
            state,
            actions,
            past_actions=past,
            durations=durations,
            reencode_every=reencode_every,
            level=level,
            return_latents=return_latents,
        )

    in_axes = (0, 0, 1, None if windows.durations is None else 1)
    return jax.vmap(rollout, in_axes, out_axes=1)(states, past_actions, windows.actions, windows.durations)


def histories(model: AnyModel, windows: Windows) -> tuple[Array, Array]:
    """Raw states [batch, observed, state] and past actions [batch, past, action] at the windows' starts."""
    assert windows.past_states is not None
    assert windows.past_actions is not None
    before = windows.past_states[len(windows.past_states) - model.config.history + 1 :]
    states = jnp.concatenate([before, windows.states[:1]])
    actions = windows.past_actions[len(windows.past_actions) - model.past_steps :]
    return jnp.swapaxes(states, 0, 1), jnp.swapaxes(jnp.asarray(actions), 0, 1)


def squared_errors(model: AnyModel, windows: Windows, *, reencode_every: Reencoding = None) -> dict[str, SquaredErrors]:
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
    # Bytes of frames would wrap around: 3 − 5 is 254.
    predicted, true = (each.astype(jnp.promote_types(each.dtype, jnp.float32)) for each in (predicted, true))
    squared = jnp.broadcast_to((predicted - true) ** 2, true.shape)
    return jnp.where(jnp.isnan(squared), jnp.inf, squared)
