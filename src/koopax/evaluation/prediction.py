"""How far ahead a model can be trusted: errors at every step of the horizon, on fixed windows.

Errors are means of squared differences, in raw units and in units of the training data's standard deviation. Windows
are streamed, so their number does not matter for memory. Rollouts that leave the finite numbers are counted, and make
the error infinite: they are never dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.windows import Windows, fixed_windows
from koopax.models.dynamics import DynamicsModel

BATCH = 500


@dataclass(frozen=True)
class ErrorCurve:
    """Mean squared errors of one quantity."""

    per_step_and_dimension: np.ndarray
    """Raw units, [horizon, dimensions]."""
    scale: np.ndarray
    """The training data's standard deviation of each dimension, [dimensions]."""

    @property
    def per_step_raw(self) -> np.ndarray:
        """[horizon], raw units."""
        return self.per_step_and_dimension.mean(axis=1)

    @property
    def per_step(self) -> np.ndarray:
        """[horizon], normalised."""
        return (self.per_step_and_dimension / self.scale**2).mean(axis=1)

    @property
    def per_dimension(self) -> np.ndarray:
        """[dimensions], normalised."""
        return (self.per_step_and_dimension / self.scale**2).mean(axis=0)

    @property
    def raw(self) -> float:
        """The mean over the horizon and dimensions, raw units."""
        return float(self.per_step_raw.mean())

    @property
    def normalised(self) -> float:
        """The mean over the horizon and dimensions, normalised."""
        return float(self.per_step.mean())

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; those that are not finite become None."""
        return {
            "raw": _number(self.raw),
            "normalised": _number(self.normalised),
            "per_step": [_number(value) for value in self.per_step],
            "per_step_raw": [_number(value) for value in self.per_step_raw],
            "per_dimension": [_number(value) for value in self.per_dimension],
        }


@dataclass(frozen=True)
class PredictionError:
    """What `prediction_error` found."""

    model: str
    """Name of the core."""
    horizon: int
    """Steps predicted."""
    windows: int
    """Windows predicted."""
    nonfinite: int
    """Windows whose prediction left the finite numbers."""
    state: ErrorCurve
    """Errors of s_{t+1} … s_{t+T}."""
    reward: ErrorCurve
    """Errors of r_t … r_{t+T−1}."""
    baselines: dict[str, tuple[ErrorCurve, ErrorCurve]]
    """State and reward errors of predicting no change (`constant`: the start state, and the first reward as if it were
    known, so that its error at the first step is 0) and the training mean (`mean`)."""

    def to_json(self) -> dict[str, Any]:
        """The document that `koopax evaluate --json` prints."""
        return {
            "model": self.model,
            "horizon": self.horizon,
            "windows": self.windows,
            "nonfinite": self.nonfinite,
            "state": self.state.to_json(),
            "reward": self.reward.to_json(),
            "baselines": {
                name: {"state": state.to_json(), "reward": reward.to_json()}
                for name, (state, reward) in self.baselines.items()
            },
        }


def prediction_error(
    model: DynamicsModel,
    episodes: Episodes,
    *,
    horizon: int = 100,
    windows: int = 50_000,
    seed: int = 0,
    reencode_every: int | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> PredictionError:
    """Predict fixed windows of test episodes and compare.

    Args:
        model: the model.
        episodes: test episodes, that the model was not trained on.
        horizon: steps to predict.
        windows: how many windows; all there are, where there are fewer.
        seed: decides the windows, so that every model is tested on the same.
        reencode_every: see `DynamicsModel.rollout`.
        watch: called with the windows done and the windows in all.
    """
    batches = fixed_windows(episodes, horizon, windows, seed=seed, batch_size=BATCH)

    @eqx.filter_jit
    def squared_errors(model: DynamicsModel, windows: Windows) -> dict[str, Any]:
        over_batch = None if windows.durations is None else 1

        def predict(state, actions, durations):
            return model.rollout(state, actions, durations=durations, reencode_every=reencode_every)

        start, future = windows.states[0], windows.states[1:]
        predicted = jax.vmap(predict, in_axes=(0, 1, over_batch), out_axes=1)(start, windows.actions, windows.durations)
        finite = jnp.isfinite(predicted.states).all((0, 2)) & jnp.isfinite(predicted.rewards).all(0)
        mean = model.normaliser
        return {
            "nonfinite": jnp.sum(~finite),
            "model": (_sums(predicted.states, future), _sums(predicted.rewards, windows.rewards)),
            "constant": (_sums(start[None], future), _sums(windows.rewards[:1], windows.rewards)),
            "mean": (_sums(mean.state_mean, future), _sums(mean.reward_mean, windows.rewards)),
        }

    totals: dict[str, Any] | None = None
    done = 0
    for batch in batches:
        found = jax.device_get(squared_errors(model, jax.tree.map(jnp.asarray, batch)))
        found = jax.tree.map(lambda value: np.asarray(value, np.float64), found)
        totals = found if totals is None else jax.tree.map(np.add, totals, found)
        done += batch.rewards.shape[1]
        if watch is not None:
            watch(done, batches.num_windows)
    assert totals is not None  # fixed_windows refuses a set without windows

    scales = np.asarray(model.normaliser.state_std, np.float64), np.asarray(model.normaliser.reward_std, np.float64)

    def curves(name: str) -> tuple[ErrorCurve, ErrorCurve]:
        state, reward = (_infinite_for_nan(total / done) for total in totals[name])
        return ErrorCurve(state, scales[0]), ErrorCurve(reward[:, None], scales[1][None])

    state, reward = curves("model")
    return PredictionError(
        model=model.config.core,
        horizon=horizon,
        windows=done,
        nonfinite=int(totals["nonfinite"]),
        state=state,
        reward=reward,
        baselines={name: curves(name) for name in ("constant", "mean")},
    )


def _sums(predicted: jax.Array, true: jax.Array) -> jax.Array:
    """Squared errors summed over the batch, the second axis."""
    return jnp.sum(jnp.broadcast_to((predicted - true) ** 2, true.shape), axis=1)


def _infinite_for_nan(errors: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(errors), np.inf, errors)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
