"""A ring buffer of transitions that lives on the device, and the running statistics of its observations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray


class Transitions(NamedTuple):
    """A batch of transitions; actions in (−1, 1), `continues` is 0 at a true termination and 1 elsewhere."""

    observations: Float[Array, "batch state"]
    actions: Float[Array, "batch action"]
    rewards: Float[Array, " batch"]
    continues: Float[Array, " batch"]
    next_observations: Float[Array, "batch state"]


class Replay(NamedTuple):
    """Storage of fixed capacity and the number of transitions ever inserted."""

    storage: Transitions
    inserted: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Transitions it can hold."""
        return self.storage.rewards.shape[0]


def make_replay(capacity: int, state_size: int, action_size: int) -> Replay:
    """An empty buffer."""
    return Replay(
        Transitions(
            observations=jnp.zeros((capacity, state_size)),
            actions=jnp.zeros((capacity, action_size)),
            rewards=jnp.zeros(capacity),
            continues=jnp.zeros(capacity),
            next_observations=jnp.zeros((capacity, state_size)),
        ),
        jnp.zeros((), jnp.int32),
    )


def insert(replay: Replay, new: Transitions) -> Replay:
    """The buffer with `new` in place of its oldest transitions.

    The capacity must be a multiple of the number of new transitions, so that a block never wraps around and
    one slice update per array does it in place.
    """
    count = new.rewards.shape[0]
    if replay.capacity % count:
        raise ValueError(f"capacity {replay.capacity} is not a multiple of {count} new transitions")
    start = replay.inserted % replay.capacity
    storage = jax.tree.map(
        lambda old, block: jax.lax.dynamic_update_slice_in_dim(old, block, start, axis=0), replay.storage, new
    )
    return Replay(storage, replay.inserted + count)


def sample(replay: Replay, size: int, *, key: PRNGKeyArray) -> Transitions:
    """`size` transitions, uniformly with replacement."""
    filled = jnp.minimum(replay.inserted, replay.capacity)
    rows = jax.random.randint(key, (size,), 0, filled)
    return jax.tree.map(lambda array: array[rows], replay.storage)


class ObservationStatistics(NamedTuple):
    """Count, mean and sum of squared deviations of every observation inserted so far."""

    count: Float[Array, ""]
    mean: Float[Array, " state"]
    squares: Float[Array, " state"]

    def deviation(self) -> Float[Array, " state"]:
        """Standard deviation per component, 1 where nothing has varied yet."""
        variance = self.squares / jnp.maximum(self.count, 1)
        return jnp.where(variance > 1e-8, jnp.sqrt(variance), 1.0)

    def normalise(self, observations: Float[Array, "batch state"]) -> Float[Array, "batch state"]:
        """(s − mean) / deviation, clipped to ±10."""
        return jnp.clip((observations - self.mean) / self.deviation(), -10, 10)


def initial_statistics(state_size: int) -> ObservationStatistics:
    """Statistics of no observation: normalising with them changes nothing but the clip."""
    return ObservationStatistics(jnp.zeros(()), jnp.zeros(state_size), jnp.zeros(state_size))


def extend_statistics(old: ObservationStatistics, observations: Float[Array, "batch state"]) -> ObservationStatistics:
    """Statistics of the old observations and these (Chan's parallel update)."""
    size = observations.shape[0]
    mean = jnp.mean(observations, axis=0)
    squares = jnp.sum((observations - mean) ** 2, axis=0)
    count = old.count + size
    shift = mean - old.mean
    return ObservationStatistics(
        count, old.mean + shift * size / count, old.squares + squares + shift**2 * old.count * size / count
    )
