"""Batches of windows from a set that stays on disk: threads read the next ones while the device computes.

Step k of a training has the windows that `WindowSampler` draws with that step's key, so a feed needs no state: it can
begin at any step, and the windows are those of the same training in memory. Grain runs the threads and the queue. A
window is a run of consecutive rows, of which the disk is told before they are read, so that a batch waits for its
slowest read and not for the sum of all.
"""

import importlib.util
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from koopax.data.windows import Windows, WindowSampler

THREADS = 8
"""They wait for the disk for most of their time."""
BLOCK_BYTES = 16 << 20
"""Of batches that are given to the device together; twice as much is read ahead."""
MOST_BATCHES = 100
_ALIGNED = 64
"""XLA takes arrays of the host as they are where they begin at a multiple of so many bytes, and copies others."""
_STEPS = 2**31 - 1
_ROWS_AT_A_TIME = 128

# The rows where the windows of some steps begin [steps, batch], by the numbers of the steps.
RowsOfSteps = Callable[[np.ndarray], np.ndarray]


def can_feed() -> bool:
    """Whether Grain is there; without it windows are read by a callback, one batch at a time."""
    return importlib.util.find_spec("grain") is not None


class Feed:
    """Batches in the order of the steps, read ahead."""

    def __init__(self, sampler: WindowSampler, batch_size: int):
        """`batch_size` windows of each step, which are those that `begin` is told."""
        self.sampler = sampler
        self.batch_size = batch_size
        batch_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(sampler.shapes(batch_size)))
        self.most = min(MOST_BATCHES, max(1, BLOCK_BYTES // batch_bytes))
        """Batches that may be taken at once."""
        self._next: int | None = None
        self._batches: Any = None

    def begin(self, rows_of: RowsOfSteps, step: int) -> None:
        """Read from `step` on; what was read ahead of other steps is dropped."""
        import grain

        self.close()
        source: Any = _Batches(self.sampler, rows_of)
        options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * self.most)
        self._batches = iter(grain.MapDataset.source(source).to_iter_dataset(options))
        self._batches.set_state({"next_index": step})
        self._batches.start_prefetch()
        self._next = step

    def is_at(self, step: int) -> bool:
        """Whether `step` is what comes next."""
        return self._next == step

    def take(self, count: int, room: int) -> Windows:
        """The next `count` batches, in arrays with room for `room` of them [room, time, batch, …]."""
        assert self._next is not None, "begin first"
        shapes = self.sampler.shapes(self.batch_size)
        together = jax.tree.map(lambda leaf: _room((room, *leaf.shape), leaf.dtype), shapes)
        for number in range(count):
            jax.tree.map(lambda all_, one: all_.__setitem__(number, one), together, next(self._batches))  # noqa: B023
        self._next += count
        return together

    def close(self) -> None:
        """End the threads."""
        if self._batches is not None:
            self._batches.close()
        self._batches, self._next = None, None


def _room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that XLA need not copy; pages that nothing is written to take no memory."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    content = np.zeros(size + _ALIGNED, np.uint8)
    begin = -content.ctypes.data % _ALIGNED
    return content[begin : begin + size].view(dtype).reshape(shape)


class _Batches:
    """What Grain reads from: element k is the batch of step k."""

    def __init__(self, sampler: WindowSampler, rows_of: RowsOfSteps):
        self._sampler = sampler
        self._rows_of = rows_of
        self._lock = threading.Lock()
        self._known: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return _STEPS

    def __getitem__(self, step: int) -> Windows:
        return self._sampler.read(self._rows(int(step)))

    def _rows(self, step: int) -> np.ndarray:
        """Where the windows of a step begin, which many steps are asked for together."""
        chunk, place = divmod(step, _ROWS_AT_A_TIME)
        with self._lock:
            if chunk not in self._known:
                first = chunk * _ROWS_AT_A_TIME
                self._known = {number: rows for number, rows in self._known.items() if number >= chunk - 8}
                self._known[chunk] = np.asarray(self._rows_of(np.arange(first, first + _ROWS_AT_A_TIME)))
            return self._known[chunk][place]

    def __iter__(self) -> Iterator[Windows]:
        return (self[step] for step in range(len(self)))
