"""The validation loss: normalised errors on fixed windows, the same at every validation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows, fixed_windows
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig

BATCH = 128


class Validation:
    """Normalised state and reward errors over the validation horizon."""

    def __init__(self, episodes: Episodes, config: TrainConfig):
        """Choose the windows, once."""
        horizon = config.validation_horizon or config.horizon
        batches = fixed_windows(episodes, horizon, config.validation_windows, seed=0, batch_size=BATCH)
        self._batches = [jax.tree.map(jnp.asarray, windows) for windows in batches]
        self._sizes = [windows.rewards.shape[1] for windows in self._batches]
        self._errors = eqx.filter_jit(normalised_errors)

    def compile(self, model: DynamicsModel) -> None:
        """Compile before the clock starts."""
        for windows in (self._batches[0], self._batches[-1]):
            jax.block_until_ready(self._errors(model, windows))

    def errors(self, model: DynamicsModel) -> dict[str, float]:
        """Mean squared errors of states and rewards, in normalised units."""
        found = [self._errors(model, windows) for windows in self._batches]
        means = np.average(np.asarray([jnp.stack(pair) for pair in found]), axis=0, weights=self._sizes)
        return {"state": float(means[0]), "reward": float(means[1])}


def normalised_errors(model: DynamicsModel, windows: Windows) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean squared state and reward error of one time-major batch."""
    over_batch = None if windows.durations is None else 1
    predict = jax.vmap(
        lambda state, actions, durations: model.rollout(state, actions, durations=durations),
        in_axes=(0, 1, over_batch),
        out_axes=1,
    )
    predicted = predict(windows.states[0], windows.actions, windows.durations)
    scale = model.normaliser
    state = jnp.mean(((predicted.states - windows.states[1:]) / scale.state_std) ** 2)
    reward = jnp.mean(((predicted.rewards - windows.rewards) / scale.reward_std) ** 2)
    return state, reward
