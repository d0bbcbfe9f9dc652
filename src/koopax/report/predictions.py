"""What models predict on the same test windows, kept window by window, so that charts and videos show the same."""

from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows, Windows, fixed_windows
from koopax.models.dynamics import DynamicsModel

BATCH = 250


@dataclass(frozen=True)
class TestWindows:
    """The windows that every model of a set is tested on."""

    episodes: Episodes
    """The test episodes."""
    fixed: FixedWindows
    """Where the windows are; one batch."""

    @cached_property
    def values(self) -> Windows:
        """The windows themselves, as NumPy arrays [window, time, …]."""
        return jax.tree.map(lambda array: array.swapaxes(0, 1), next(iter(self.fixed)))

    @cached_property
    def episode(self) -> np.ndarray:
        """Number of the episode that each window is from."""
        return np.searchsorted(self.episodes.starts, self.fixed.rows, side="right") - 1

    @cached_property
    def first_step(self) -> np.ndarray:
        """The step of its episode at which each window begins."""
        return self.fixed.rows - self.episodes.starts[self.episode]


@dataclass(frozen=True)
class Predictions:
    """What one model predicts."""

    states: np.ndarray
    """ŝ_{t+1} … ŝ_{t+T}, raw units [window, time, state]."""
    rewards: np.ndarray
    """r̂_t … r̂_{t+T−1}, raw units [window, time]."""


@dataclass(frozen=True)
class Errors:
    """Squared errors of a prediction, infinite where it is not finite."""

    state: np.ndarray
    """Mean over dimensions, in units of the training data's standard deviation [window, time]."""
    state_raw: np.ndarray
    """The same in raw units."""
    reward: np.ndarray
    """Normalised [window, time]."""
    reward_raw: np.ndarray
    """In raw units."""
    per_dimension: np.ndarray
    """Normalised, mean over time [window, state]."""


def choose_windows(episodes: Episodes, *, horizon: int, count: int, seed: int = 0) -> TestWindows:
    """`count` fixed windows of `horizon` steps, or of the longest episode's length if that is shorter."""
    horizon = min(horizon, int(episodes.lengths.max()))
    return TestWindows(episodes, fixed_windows(episodes, horizon, count, seed, batch_size=count))


@eqx.filter_jit
def _predict(model: DynamicsModel, states: jax.Array, actions: jax.Array, durations: jax.Array | None):
    def rollout(state, actions, durations):
        return model.rollout(state, actions, durations=durations)

    return jax.vmap(rollout, in_axes=(0, 0, None if durations is None else 0))(states, actions, durations)


def predict(model: DynamicsModel, windows: Windows) -> Predictions:
    """Roll the model out over every window, in batches of one shape."""
    count = windows.rewards.shape[0]
    size = min(BATCH, count)
    states, rewards = [], []
    for first in range(0, count, size):
        # The last batch repeats windows of the one before rather than compiling for another shape.
        start = min(first, count - size)
        part = jax.tree.map(lambda a, start=start: jnp.asarray(a[start : start + size]), windows)
        found = jax.device_get(_predict(model, part.states[:, 0], part.actions, part.durations))
        states.append(found.states[first - start :])
        rewards.append(found.rewards[first - start :])
    return Predictions(np.concatenate(states), np.concatenate(rewards))


def errors(model: DynamicsModel, predicted: Predictions, windows: Windows) -> Errors:
    """Compare predictions with what happened."""
    return _errors(model, predicted.states, predicted.rewards, windows)


def baseline_errors(model: DynamicsModel, windows: Windows) -> dict[str, Errors]:
    """Errors of predicting no change, and of predicting the training data's mean, in the model's normalisation."""
    states, rewards = np.asarray(windows.states), np.asarray(windows.rewards)
    mean, reward_mean = np.asarray(model.normaliser.state_mean), np.asarray(model.normaliser.reward_mean)
    return {
        "no change": _errors(model, states[:, :1], rewards[:, :1], windows),
        "training mean": _errors(model, mean[None, None], reward_mean[None, None], windows),
    }


def _errors(model: DynamicsModel, states: np.ndarray, rewards: np.ndarray, windows: Windows) -> Errors:
    state_std = np.asarray(model.normaliser.state_std, np.float64)
    reward_std = float(model.normaliser.reward_std)
    with np.errstate(over="ignore", invalid="ignore"):
        state = _finite_or_infinite((states.astype(np.float64) - windows.states[:, 1:]) ** 2)
        reward = _finite_or_infinite((rewards.astype(np.float64) - windows.rewards) ** 2)
    scaled = state / state_std**2
    return Errors(scaled.mean(-1), state.mean(-1), reward / reward_std**2, reward, per_dimension=scaled.mean(1))


def _finite_or_infinite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.inf, values)
