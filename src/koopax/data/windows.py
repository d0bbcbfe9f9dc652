"""Windows of consecutive steps, drawn uniformly over all places where they fit.

A window of T steps needs T + 1 observations of one episode, so an episode of L steps offers max(0, L − T + 1) starts.
The starts of all episodes are numbered through; number u belongs to the episode e with C_{e−1} ≤ u < C_e, where C is
the running sum of the counts, and begins at row `starts[e] + u − C_{e−1}`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float, Int, PRNGKeyArray, UInt8
from koopax.data.episodes import Episodes
from koopax.data.rows import Rows, announce, take_runs

# A batch of windows for evaluation has no more numbers than this in its states: frames are large.
NUMBERS_AT_ONCE = 2**26


class Windows(NamedTuple):
    """A batch of windows, time-major: a core unrolls along the first axis."""

    states: Float[Array, "time+1 batch state"] | UInt8[Array, "time+1 batch state"]
    """s_t … s_{t+T}; of frames, their pixels side by side."""
    actions: Float[Array, "time batch action"]
    """a_t … a_{t+T−1}."""
    rewards: Float[Array, "time batch"]
    """r_t … r_{t+T−1}; r_k belongs to (s_k, a_k)."""
    durations: Float[Array, "time batch"] | None
    """Length of each step in nominal steps, or None where all are 1."""
    past_states: Float[Array, "past batch state"] | UInt8[Array, "past batch state"] | None = None
    """s_{t−n} … s_{t−1} where n were asked for, for models that see several observations at once. Before an episode's
    first one they are NaN; before its first frame, that frame again."""
    past_actions: Float[Array, "past batch action"] | None = None
    """a_{t−n} … a_{t−1}, NaN before an episode's first."""


def valid_starts(episodes: Episodes, horizon: int) -> np.ndarray:
    """Number of windows of `horizon` steps in each episode [E]: max(0, L − T + 1)."""
    if horizon < 1:
        raise KoopaxError(f"a horizon of {horizon} steps has no window: give at least 1.")
    return np.maximum(0, episodes.lengths - horizon + 1)


def _counted(episodes: Episodes, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """C_{e−1} and the first rows of the episodes that are long enough."""
    counts = valid_starts(episodes, horizon)
    total = int(counts.sum())
    if total == 0:
        raise KoopaxError(
            f"a window of {horizon} steps fits in none of the {episodes.num_episodes} episodes, the longest of which "
            f"has {int(episodes.lengths.max())} steps (0 windows): choose a shorter horizon."
        )
    if max(total, int(episodes.starts[-1])) >= 2**31:
        raise KoopaxError(f"{int(episodes.starts[-1])} rows are more than a sampler can count: split the set.")
    long_enough = counts > 0
    ends = np.cumsum(counts[long_enough])
    return np.concatenate([[0], ends]), episodes.starts[:-1][long_enough]


def _rows_of(xp, numbers, before, first_rows):
    """Row where start number u begins; `xp` is numpy or jax.numpy."""
    episode = xp.searchsorted(before, numbers, side="right") - 1
    return first_rows[episode] + numbers - before[episode]


def _gather(xp, data: tuple, rows, horizon: int, past: int, first_rows) -> Windows:
    """The windows that begin at `rows`; `first_rows` are those of the episodes, in order."""
    observations, actions, rewards, durations = data

    def take(array, rows, count: int) -> Any:
        if xp is np:
            return take_runs(array, rows, count)
        return array[xp.arange(count, dtype=rows.dtype)[:, None] + rows[None, :]]

    past_states = past_actions = None
    if past:
        before, inside = _rows_before(xp, rows, past, first_rows)
        past_states, past_actions = (
            _side_by_side(observations[before]),
            xp.where(inside[..., None], actions[before], xp.nan),
        )
        if past_states.dtype != xp.uint8:
            past_states = xp.where(inside[..., None], past_states, xp.nan)
            past_states = past_states.astype(observations.dtype)
        past_actions = past_actions.astype(actions.dtype)
    return Windows(
        states=_side_by_side(take(observations, rows, horizon + 1)),
        actions=take(actions, rows, horizon),
        rewards=take(rewards, rows, horizon),
        durations=None if durations is None else take(durations, rows, horizon),
        past_states=past_states,
        past_actions=past_actions,
    )


def _side_by_side(rows):
    """Observations [time, batch, …], each as one vector."""
    return rows.reshape(*rows.shape[:2], -1)


def _rows_before(xp, rows, past: int, first_rows):
    """The `past` rows before each of `rows`, none before the episode's first, and which were there [past, batch]."""
    first = first_rows[xp.searchsorted(first_rows, rows, side="right") - 1][None, :]
    wanted = rows[None, :] - xp.arange(past, 0, -1, dtype=rows.dtype)[:, None]
    return xp.maximum(wanted, first), wanted >= first


class WindowSampler(eqx.Module):
    """Draws windows inside a compiled step; a pytree, so pass it to the jitted function as an argument.

    The arrays of an in-memory set of vectors are put on the device. A memory-mapped set stays on disk and frames stay
    where they are, once; their windows are gathered by a callback to the host and are the same.
    """

    before: Int[Array, "episodes+1"]
    first_rows: Int[Array, "episodes"]
    data: tuple[Array | None, ...] | None
    horizon: int = eqx.field(static=True)
    past: int = eqx.field(static=True)
    num_windows: int = eqx.field(static=True)
    on_host: Episodes | None = eqx.field(static=True)

    def __init__(self, episodes: Episodes, horizon: int, *, past: int = 0) -> None:
        """Windows of `horizon` steps, each with the `past` states before it."""
        before, first_rows = _counted(episodes, horizon)
        self.before = jnp.asarray(before, jnp.int32)
        self.first_rows = jnp.asarray(first_rows, jnp.int32)
        self.horizon = horizon
        self.num_windows = int(before[-1])
        self.past = past
        self.on_host = episodes if episodes.is_memory_mapped or episodes.image_shape is not None else None
        self.data = None if self.on_host is not None else jax.tree.map(jnp.asarray, _arrays(episodes))

    def sample(self, key: PRNGKeyArray, batch_size: int) -> Windows:
        """`batch_size` windows, each uniform over all `num_windows` starts; the same key gives the same windows."""
        return self.gather(self.rows(key, batch_size))

    def rows(self, key: PRNGKeyArray, batch_size: int) -> Int[Array, "batch"]:
        """Where the windows of `sample` begin."""
        numbers = jax.random.randint(key, (batch_size,), 0, self.num_windows, jnp.int32)
        return _rows_of(jnp, numbers, self.before, self.first_rows)

    def gather(self, rows: Int[Array, "batch"]) -> Windows:
        """The windows that begin at these rows."""
        if self.data is not None:
            return _gather(jnp, self.data, rows, self.horizon, self.past, self.first_rows)
        return jax.pure_callback(lambda rows: self.read(rows), self.shapes(rows.shape[0]), rows)

    def read(self, rows: np.ndarray | Array) -> Windows:
        """As `gather`, on the host, of a set that is kept there: announced to the disk first, then read."""
        assert self.on_host is not None
        rows, data = np.asarray(rows, np.int64), _arrays(self.on_host)
        for array, count in zip(data, (self.horizon + 1, *[self.horizon] * 3), strict=True):
            if array is not None:
                announce(array, rows, count)
        return _gather(np, data, rows, self.horizon, self.past, self.on_host.starts)

    def shapes(self, batch_size: int) -> Windows:
        """Shapes and types of a batch from a set that is kept on the host."""
        episodes = self.on_host
        assert episodes is not None

        def gather(data: tuple, rows: Array) -> Windows:
            return _gather(jnp, data, rows, self.horizon, self.past, jnp.asarray(episodes.starts, rows.dtype))

        like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, _dtype(a)), _arrays(episodes))
        return jax.eval_shape(gather, like, jax.ShapeDtypeStruct((batch_size,), jnp.int32))


class FixedWindows:
    """The same windows every time it is iterated, as NumPy batches gathered one by one."""

    def __init__(self, episodes: Episodes, rows: np.ndarray, horizon: int, batch_size: int, past: int = 0) -> None:
        self.episodes = episodes
        self.past = past
        self.rows = rows
        self.horizon = horizon
        self.batch_size = batch_size

    @property
    def num_windows(self) -> int:
        """Number of windows in all batches."""
        return len(self.rows)

    def take(self, chosen: slice | np.ndarray) -> Windows:
        """Some of the windows, in one batch."""
        return _gather(np, _arrays(self.episodes), self.rows[chosen], self.horizon, self.past, self.episodes.starts)

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Windows]:
        for start in range(0, len(self.rows), self.batch_size):
            yield self.take(slice(start, start + self.batch_size))


def fixed_windows(
    episodes: Episodes, horizon: int, count: int, seed: int, *, batch_size: int = 1000, past: int = 0
) -> FixedWindows:
    """`count` different windows for evaluation, in random order; every window there is, once, where there are fewer.

    Batches hold `batch_size` windows, the last one and those of large frames fewer; each window has the `past` states
    before it.
    """
    if count < 1 or batch_size < 1:
        raise KoopaxError(f"{count} windows in batches of {batch_size}: both must be at least 1.")
    before, first_rows = _counted(episodes, horizon)
    total = int(before[-1])
    numbers = np.random.default_rng(seed).choice(total, size=min(count, total), replace=False)
    batch_size = min(batch_size, windows_within(NUMBERS_AT_ONCE, episodes, horizon))
    return FixedWindows(episodes, _rows_of(np, numbers, before, first_rows), horizon, batch_size, past)


def even_windows(
    episodes: Episodes, horizon: int, count: int, *, batch_size: int = 1000, past: int = 0
) -> FixedWindows:
    """`count` windows evenly spread over all places where one fits, in order; all there are, where there are fewer."""
    if count < 1 or batch_size < 1:
        raise KoopaxError(f"{count} windows in batches of {batch_size}: both must be at least 1.")
    before, first_rows = _counted(episodes, horizon)
    total = int(before[-1])
    count = min(count, total)
    numbers = ((2 * np.arange(count) + 1) * total) // (2 * count)
    return FixedWindows(episodes, _rows_of(np, numbers, before, first_rows), horizon, batch_size, past)


def windows_within(numbers: int, episodes: Episodes, horizon: int) -> int:
    """How many windows have no more numbers in their states than that; at least one."""
    return max(1, numbers // ((horizon + 1) * episodes.state_size))


def _dtype(rows: Rows) -> type:
    return jnp.uint8 if rows.dtype == np.uint8 else jnp.float32


def _arrays(episodes: Episodes) -> tuple:
    return episodes.observations, episodes.actions, episodes.rewards, episodes.durations
