"""Normalisation of states, actions and rewards to zero mean and unit variance."""

import warnings
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from koopax._errors import KoopaxError, KoopaxWarning
from koopax._types import Array, Float, Num
from koopax.data.episodes import Episodes
from koopax.data.statistics import LARGEST, SMALLEST, Columns


class Normaliser(eqx.Module):
    """x ↦ (x − mean) / std for states, actions and rewards; fitted on the training episodes and saved in the model.

    The arrays are constants: no gradient reaches them. All methods work on any leading axes.
    """

    state_mean: Float[Array, "state"]
    state_std: Float[Array, "state"]
    action_mean: Float[Array, "action"]
    action_std: Float[Array, "action"]
    reward_mean: Float[Array, ""]
    reward_std: Float[Array, ""]

    @classmethod
    def fit(cls, episodes: Episodes) -> "Normaliser":
        """Mean and standard deviation of the episodes, summed in float64; a constant column keeps std 1.

        Of images it is every pixel's own mean, and one deviation for all: the root of the mean variance of a pixel. So
        still pixels stay still, and always predicting the mean frame is an error of 1.
        """
        found = episodes.statistics()
        _check_scale("state", found.state)
        _check_scale("action", found.action)
        _check_scale("reward", found.reward)
        states = found.state if episodes.image_shape is None else _with_common_deviation(found.state)
        reward_mean, reward_std = _moments(found.reward)
        return cls(*_moments(states), *_moments(found.action), reward_mean[0], reward_std[0])

    @classmethod
    def identity(cls, state_size: int, action_size: int) -> "Normaliser":
        """The normaliser that changes nothing."""
        zeros, ones = jnp.zeros, jnp.ones
        return cls(zeros(state_size), ones(state_size), zeros(action_size), ones(action_size), zeros(()), ones(()))

    def normalise_state(self, state: Num[Array, "*batch state"]) -> Float[Array, "*batch state"]:
        """Raw to normalised states; pixels are uint8 before and float32 after."""
        return (state - stop_gradient(self.state_mean)) / stop_gradient(self.state_std)

    def denormalise_state(self, state: Float[Array, "*batch state"]) -> Float[Array, "*batch state"]:
        """Normalised to raw states."""
        return state * stop_gradient(self.state_std) + stop_gradient(self.state_mean)

    def normalise_action(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Raw to normalised actions."""
        return (action - stop_gradient(self.action_mean)) / stop_gradient(self.action_std)

    def denormalise_action(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Normalised to raw actions."""
        return action * stop_gradient(self.action_std) + stop_gradient(self.action_mean)

    def normalise_reward(self, reward: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Raw to normalised rewards."""
        return (reward - stop_gradient(self.reward_mean)) / stop_gradient(self.reward_std)

    def denormalise_reward(self, reward: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Normalised to raw rewards."""
        return reward * stop_gradient(self.reward_std) + stop_gradient(self.reward_mean)


def _check_scale(kind: str, columns: Columns) -> None:
    """Say what is too small to be learned, and refuse what is too large."""
    if (large := np.flatnonzero(columns.std > LARGEST)).size:
        raise KoopaxError(
            f"{kind} column {large[0]} has a standard deviation of {columns.std[large[0]]:.2g}, the square of which is "
            "too large for float32: give it in a larger unit."
        )
    if (small := np.flatnonzero((columns.maximum > columns.minimum) & (columns.std < SMALLEST))).size:
        warnings.warn(
            f"{kind} column {small[0]} varies by {columns.std[small[0]]:.2g} only and counts as constant: give it in a "
            "smaller unit if that is not rounding.",
            KoopaxWarning,
            stacklevel=3,
        )


def _with_common_deviation(pixels: Columns) -> Columns:
    return replace(pixels, std=np.full_like(pixels.std, np.sqrt(np.mean(pixels.std**2))))


def _moments(columns: Columns) -> tuple[Array, Array]:
    std = columns.std.copy()
    std[columns.constant] = 1.0
    return jnp.asarray(columns.mean, jnp.float32), jnp.asarray(std, jnp.float32)
