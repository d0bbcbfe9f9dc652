"""Streaming statistics of a set of episodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from koopax.data.episodes import Episodes

_CHUNK_ROWS = 1 << 18
SMALLEST, LARGEST = 1e-15, 1e15
"""Deviations between which an error can be squared in float32, with room for errors much smaller and larger."""
_CHUNK_BYTES = 1 << 26
"""Of images, which take more than vectors."""


class Chunk(NamedTuple):
    """Some consecutive episodes with their rows in memory."""

    first_episode: int
    starts: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    durations: np.ndarray | None

    @property
    def steps(self) -> np.ndarray:
        """Mask of the rows that hold a transition, that is all but the last of each episode [rows]."""
        mask = np.ones(len(self.rewards), bool)
        mask[self.starts[1:] - 1] = False
        return mask


def episode_ranges(starts: np.ndarray, rows: int = _CHUNK_ROWS) -> Iterator[tuple[int, int]]:
    """Ranges (first, end) of whole episodes of at most `rows` rows together, or of one longer episode."""
    first = 0
    while first < len(starts) - 1:
        end = max(first + 1, int(np.searchsorted(starts, starts[first] + rows, side="right")) - 1)
        yield first, end
        first = end


def iterate_chunks(episodes: "Episodes", rows: int = _CHUNK_ROWS) -> Iterator[Chunk]:
    """The whole set in order, in chunks of whole episodes."""
    if episodes.image_shape is not None:
        rows = min(rows, max(1, _CHUNK_BYTES // episodes.state_size))
    for first, end in episode_ranges(episodes.starts, rows):
        piece = slice(int(episodes.starts[first]), int(episodes.starts[end]))
        yield Chunk(
            first_episode=first,
            starts=episodes.starts[first : end + 1] - piece.start,
            observations=np.asarray(episodes.observations[piece]),
            actions=np.asarray(episodes.actions[piece]),
            rewards=np.asarray(episodes.rewards[piece]),
            durations=None if episodes.durations is None else np.asarray(episodes.durations[piece]),
        )


@dataclass(frozen=True)
class Columns:
    """Per-column statistics over finite values, float64 [columns]."""

    mean: np.ndarray
    """Mean."""
    std: np.ndarray
    """Standard deviation (dividing by the count)."""
    minimum: np.ndarray
    """Smallest value."""
    maximum: np.ndarray
    """Largest value."""
    nonfinite: np.ndarray
    """Number of NaN and infinite values."""

    @property
    def constant(self) -> np.ndarray:
        """Columns that do not vary beyond float32 rounding, or by less than float32 can square [columns]."""
        return (self.std <= 1e-6 * np.abs(self.mean)) | (self.std < SMALLEST)


@dataclass(frozen=True)
class Statistics:
    """Statistics of states (T + 1 per episode), actions and rewards (T per episode)."""

    state: Columns
    """Of every state column; of images, of every number in a frame, [height × width × channels]."""
    action: Columns
    """Of every action column."""
    reward: Columns
    """Of the reward, one column."""


class _Accumulator:
    """Count, mean and sum of squared deviations of the columns, joined chunk by chunk (Chan et al.) in float64."""

    def __init__(self, columns: int) -> None:
        self.count = np.zeros(columns)
        self.mean = np.zeros(columns)
        self.squares = np.zeros(columns)
        self.minimum = np.full(columns, np.inf)
        self.maximum = np.full(columns, -np.inf)
        self.nonfinite = np.zeros(columns, np.int64)

    def add(self, values: np.ndarray) -> None:
        finite = np.isfinite(values)
        count = finite.sum(axis=0).astype(np.float64)
        safe = np.maximum(count, 1)
        wide = np.where(finite, values, 0).astype(np.float64)
        mean = wide.sum(axis=0) / safe
        squares = (np.where(finite, wide - mean, 0) ** 2).sum(axis=0)
        total = np.maximum(self.count + count, 1)
        shift = mean - self.mean
        self.squares += squares + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count += count
        self.minimum = np.minimum(self.minimum, np.where(finite, values, np.inf).min(axis=0))
        self.maximum = np.maximum(self.maximum, np.where(finite, values, -np.inf).max(axis=0))
        self.nonfinite += (~finite).sum(axis=0)

    def result(self) -> Columns:
        std = np.sqrt(self.squares / np.maximum(self.count, 1))
        return Columns(self.mean, std, self.minimum, self.maximum, self.nonfinite)


class _PixelAccumulator:
    """Sums and sums of squares of uint8 pixels, which whole numbers hold exactly; some frames at a time."""

    def __init__(self, pixels: int) -> None:
        self.count = 0
        self.total = np.zeros(pixels, np.int64)
        self.squares = np.zeros(pixels, np.int64)
        self.minimum = np.full(pixels, 255, np.uint8)
        self.maximum = np.zeros(pixels, np.uint8)

    def add(self, frames: np.ndarray) -> None:
        # The squares of so many pixels fit into 32 bits.
        for first in range(0, len(frames), 256):
            some = frames[first : first + 256].reshape(-1, len(self.total))
            self.count += len(some)
            self.total += some.sum(axis=0, dtype=np.uint32)
            self.squares += np.square(some, dtype=np.uint16).sum(axis=0, dtype=np.uint32)
            np.minimum(self.minimum, some.min(axis=0), out=self.minimum)
            np.maximum(self.maximum, some.max(axis=0), out=self.maximum)

    def result(self) -> Columns:
        mean = self.total / self.count
        # n Σx² − (Σx)² of whole numbers: nothing is lost where a pixel hardly varies.
        spread = self.count * self.squares.astype(np.longdouble) - self.total.astype(np.longdouble) ** 2
        std = np.asarray(np.sqrt(spread), np.float64) / self.count
        minimum, maximum = self.minimum.astype(np.float64), self.maximum.astype(np.float64)
        return Columns(mean, std, minimum, maximum, np.zeros(len(mean), np.int64))


def statistics(episodes: "Episodes") -> Statistics:
    """Statistics of every column; padding rows don't count, and NaN or infinite values are left out and counted."""
    action, reward = _Accumulator(episodes.action_size), _Accumulator(1)
    state = (_Accumulator if episodes.image_shape is None else _PixelAccumulator)(episodes.state_size)
    for chunk in iterate_chunks(episodes):
        steps = chunk.steps
        state.add(chunk.observations)
        action.add(chunk.actions[steps])
        reward.add(chunk.rewards[steps][:, None])
    return Statistics(state.result(), action.result(), reward.result())
