"""The validation loss: normalised errors on fixed windows, the same at every validation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import NUMBERS_AT_ONCE, Windows, fixed_windows, windows_within
from koopax.evaluation.errors import squared_errors
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig

BATCH = 128


class Validation:
    """Normalised state and reward errors over the validation horizon."""

    def __init__(self, episodes: Episodes, config: TrainConfig, *, past: int = 0):
        """Choose the windows, once, each with so many steps before it."""
        horizon = config.validation_horizon or config.horizon
        assert horizon is not None  # resolved
        if (most := int(episodes.lengths.max())) < horizon:
            raise KoopaxError(
                f"a window of {horizon} steps fits in none of the {episodes.num_episodes} validation episodes, the "
                f"longest of which has {most} steps: choose a shorter horizon or validation_horizon, or validate on "
                "others."
            )
        count = min(config.validation_windows, windows_within(NUMBERS_AT_ONCE, episodes, horizon))
        batches = fixed_windows(episodes, horizon, count, seed=0, batch_size=BATCH, past=past)
        self._batches = [jax.tree.map(jnp.asarray, windows) for windows in batches]
        self._sizes = [windows.rewards.shape[1] for windows in self._batches]
        self._quantities = ("state", "reward") if episodes.has_rewards else ("state",)
        self._errors = eqx.filter_jit(normalised_errors)

    def compile(self, model: DynamicsModel) -> None:
        """Compile before the clock starts."""
        for windows in (self._batches[0], self._batches[-1]):
            jax.block_until_ready(self._errors(model, windows))

    def errors(self, model: DynamicsModel) -> dict[str, float]:
        """Mean squared errors of states, and of rewards where there are any, in normalised units."""
        found = [self._errors(model, windows) for windows in self._batches]
        return {
            name: float(np.average([float(errors[name]) for errors in found], weights=self._sizes))
            for name in self._quantities
        }


def normalised_errors(model: DynamicsModel, windows: Windows) -> dict[str, Float[Array, ""]]:
    """Mean squared state and reward error of one batch, in units of the training data's variance."""
    found, scale = squared_errors(model, windows)["model"], model.normaliser
    return {
        "state": jnp.mean(found.state / scale.state_std**2),
        "reward": jnp.mean(found.reward / scale.reward_std**2),
    }
