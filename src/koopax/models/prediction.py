"""What a model returns, in raw units."""

from typing import NamedTuple

from koopax._types import Array, Float


class Prediction(NamedTuple):
    """What a model expects to happen."""

    states: Float[Array, "time state"]
    """ŝ_{t+1} … ŝ_{t+T}, in raw units."""
    rewards: Float[Array, " time"]
    """r̂_t … r̂_{t+T−1}, in raw units."""
    latents: Float[Array, "time latent"] | None = None
    """x̂_{t+1} … x̂_{t+T}, where they were asked for."""
    lower: Float[Array, "time state"] | None = None
    """Where the states' intervals begin, for a `level` that was asked for."""
    upper: Float[Array, "time state"] | None = None
    """Where they end."""
    reward_lower: Float[Array, " time"] | None = None
    """The same of rewards."""
    reward_upper: Float[Array, " time"] | None = None
    """The same of rewards."""
    spread: Float[Array, "time state"] | None = None
    """Standard deviation of what the members of an ensemble predict."""
    reward_spread: Float[Array, " time"] | None = None
    """The same of rewards."""


class OneStep(NamedTuple):
    """What a model expects of one action."""

    state: Float[Array, " state"]
    """ŝ_{t+1}, in raw units."""
    reward: Float[Array, ""]
    """r̂_t, in raw units."""
