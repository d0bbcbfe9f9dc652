"""What models predict on the test windows, window by window, so that charts, intervals and videos show the same.

The windows and the errors are those of `koopax evaluate`: only the reduction differs, which here keeps the windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows, Windows
from koopax.evaluation import errors
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.models.dynamics import DynamicsModel
from koopax.models.ensemble import AnyModel
from koopax.models.prediction import Prediction


@dataclass(frozen=True)
class TestWindows:
    """The windows that every model of a set is tested on."""

    episodes: Episodes
    """The test episodes."""
    fixed: FixedWindows
    """Where the windows are, in the batches in which they are predicted."""

    @cached_property
    def episode(self) -> np.ndarray:
        """Number of the episode that each window is from."""
        return np.searchsorted(self.episodes.starts, self.fixed.rows, side="right") - 1

    @cached_property
    def first_step(self) -> np.ndarray:
        """The step of its episode at which each window begins."""
        return self.fixed.rows - self.episodes.starts[self.episode]


@dataclass(frozen=True)
class WindowErrors:
    """Squared errors of a predictor on each window, infinite where the prediction is not finite."""

    state: np.ndarray
    """Mean over dimensions, in units of the training data's standard deviation [window, time]."""
    state_raw: np.ndarray
    """The same in raw units."""
    reward: np.ndarray
    """Normalised [window, time]."""
    reward_raw: np.ndarray
    """In raw units."""
    per_dimension: np.ndarray
    """Normalised, mean over time [window, state]; of frames, [window, channel]."""


def choose_windows(
    episodes: Episodes,
    *,
    horizon: int,
    count: int = WINDOWS,
    seed: int = SEED,
    models: Iterable[AnyModel] = (),
) -> TestWindows:
    """`count` test windows of `horizon` steps, or of the longest episode's length if that is shorter.

    They come with as many steps before them as one of the models makes use of.
    """
    horizon = min(horizon, int(episodes.lengths.max()))
    return TestWindows(episodes, errors.choose_windows(episodes, horizon, count=count, seed=seed, models=models))


def predict(model: AnyModel, windows: Windows, *, level: float | None = None) -> Prediction:
    """What the model predicts for a few windows, as NumPy arrays [time, window, …], with intervals of a level."""
    return jax.device_get(_predict(model, jax.tree.map(jnp.asarray, windows), level=level))


_predict = eqx.filter_jit(errors.predict_windows)


def errors_by_window(model: DynamicsModel, windows: TestWindows) -> dict[str, WindowErrors]:
    """The errors on every window of the model (`model`) and of the reference predictors (`constant`, `mean`)."""
    found = [jax.device_get(_by_window(model, jax.tree.map(jnp.asarray, batch))) for batch in windows.fixed]
    return {
        name: WindowErrors(
            **{quantity: np.concatenate([part[name][quantity] for part in found], dtype=np.float64) for quantity in of}
        )
        for name, of in found[0].items()
    }


@eqx.filter_jit
def _by_window(model: DynamicsModel, windows: Windows) -> dict[str, dict[str, jax.Array]]:
    state_variance, reward_variance = model.normaliser.state_std**2, model.normaliser.reward_std**2
    reduced = {}
    for name, of in errors.squared_errors(model, windows).items():
        state, reward = jnp.swapaxes(of.state, 0, 1), of.reward.T
        scaled = state / state_variance
        shape = model.config.image_shape
        parts = scaled if shape is None else scaled.reshape(*scaled.shape[:2], -1, shape[2]).mean(2)
        reduced[name] = {
            "state": scaled.mean(-1),
            "state_raw": state.mean(-1),
            "reward": reward / reward_variance,
            "reward_raw": reward,
            "per_dimension": parts.mean(1),
        }
    return reduced
