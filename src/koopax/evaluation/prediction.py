"""How far ahead a model can be trusted: errors at every step of the horizon, on fixed windows.

Errors are means of squared differences, in raw units and in units of the training data's standard deviation. Windows
are streamed, so their number does not matter for memory. Predictions that diverge are counted, and make the error
infinite: they are never dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.windows import Windows
from koopax.evaluation.errors import BATCH, choose_windows, squared_errors
from koopax.evaluation.protocol import BASELINES, SEED, WINDOWS
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.ensemble import AnyModel


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
    """Name of the core, or of the regression."""
    horizon: int
    """Steps predicted."""
    windows: int
    """Windows predicted."""
    nonfinite: int
    """Windows whose prediction diverged: some of its numbers are not finite."""
    state: ErrorCurve
    """Errors of s_{t+1} … s_{t+T}."""
    reward: ErrorCurve | None
    """Errors of r_t … r_{t+T−1}; None where the test episodes have no rewards."""
    baselines: dict[str, tuple[ErrorCurve, ErrorCurve | None]]
    """State and reward errors of predicting no change (`constant`: the start state, and the first reward as if it were
    known, so that its error at the first step is 0), of the training mean (`mean`) and of given references."""

    def to_json(self) -> dict[str, Any]:
        """The document that `koopax evaluate --json` prints; `reward` is None where there are no rewards."""
        return {
            "model": self.model,
            "horizon": self.horizon,
            "windows": self.windows,
            "nonfinite": self.nonfinite,
            "state": self.state.to_json(),
            "reward": _document(self.reward),
            "baselines": {
                name: {"state": state.to_json(), "reward": _document(reward)}
                for name, (state, reward) in self.baselines.items()
            },
        }


def prediction_error(
    model: AnyModel,
    episodes: Episodes,
    *,
    horizon: int = 100,
    windows: int = WINDOWS,
    seed: int = SEED,
    reencode_every: Reencoding = None,
    references: Mapping[str, DynamicsModel] | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> PredictionError:
    """Predict fixed windows of test episodes and compare.

    Args:
        model: the model, or an ensemble.
        episodes: test episodes, that the model was not trained on.
        horizon: steps to predict.
        windows: how many windows; all there are, where there are fewer.
        seed: decides the windows, so that every model is tested on the same.
        reencode_every: see `DynamicsModel.rollout`.
        references: other models to stand among the baselines, by name; errors are in the units of `model`'s data.
        watch: called with the windows done and the windows in all.
    """
    others = dict(references or {})
    batches = choose_windows(
        episodes, horizon, count=windows, seed=seed, batch_size=BATCH, models=(model, *others.values())
    )
    totals: dict[str, Any] | None = None
    done = 0
    for batch in batches:
        on_device = jax.tree.map(jnp.asarray, batch)
        found = _summed_errors(model, on_device, reencode_every)
        found |= {name: _summed_errors(other, on_device, None)["model"] for name, other in others.items()}
        found = jax.tree.map(lambda value: np.asarray(value, np.float64), jax.device_get(found))
        totals = found if totals is None else jax.tree.map(np.add, totals, found)
        done += batch.rewards.shape[1]
        if watch is not None:
            watch(done, batches.num_windows)
    assert totals is not None  # a set without windows is refused

    scale, has_rewards = model.normaliser, episodes.has_rewards

    def curves(name: str) -> tuple[ErrorCurve, ErrorCurve | None]:
        state, reward = (total / done for total in totals[name])
        deviation = np.asarray(scale.state_std, np.float64)
        if model.config.image_shape is not None:  # pixels have one deviation, and nobody reads an error for each
            channels = model.config.image_shape[2]
            state, deviation = state.reshape(len(state), -1, channels).mean(axis=1), deviation[:channels]
        return (
            ErrorCurve(state, deviation),
            ErrorCurve(reward[:, None], np.asarray(scale.reward_std, np.float64)[None]) if has_rewards else None,
        )

    state, reward = curves("model")
    return PredictionError(
        model=model.name,
        horizon=horizon,
        windows=done,
        nonfinite=int(totals["nonfinite"]),
        state=state,
        reward=reward,
        baselines={name: curves(name) for name in (*BASELINES, *others)},
    )


@eqx.filter_jit
def _summed_errors(model: AnyModel, windows: Windows, reencode_every: Reencoding) -> dict[str, Any]:
    """Squared errors summed over the batch, [time, …], and how many predictions diverged."""
    found = squared_errors(model, windows, reencode_every=reencode_every)
    finite = jnp.isfinite(found["model"].state).all((0, 2)) & jnp.isfinite(found["model"].reward).all(0)
    return {
        "nonfinite": jnp.sum(~finite),
        **{name: (errors.state.sum(1), errors.reward.sum(1)) for name, errors in found.items()},
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _document(curve: ErrorCurve | None) -> dict[str, Any] | None:
    return None if curve is None else curve.to_json()
