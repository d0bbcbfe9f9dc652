"""Rows of large arrays, on disk or of images, picked episode by episode without copying them."""

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


class RowView:
    """Runs of consecutive rows of several arrays that look like one array.

    `split`, `select` and `concatenate` of a set on disk or of images return these, so that a set that fills the memory,
    or is larger, can be cut into training and test episodes without a copy. Run k stands for
    `parts[part[k]][first[k] : first[k] + length[k]]`; logical row r belongs to the run found by bisection over the
    cumulated lengths.
    """

    def __init__(self, parts: Sequence[np.ndarray], part: np.ndarray, first: np.ndarray, length: np.ndarray) -> None:
        self.parts = tuple(parts)
        self.part = np.asarray(part, np.int64)
        self.first = np.asarray(first, np.int64)
        self.starts = np.concatenate([[0], np.cumsum(np.asarray(length, np.int64))])
        self.dtype = self.parts[0].dtype
        self.shape = (int(self.starts[-1]), *self.parts[0].shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size that the rows would take in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, slice):
            return self._range(*index.indices(len(self)))
        rows = np.asarray(index)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"row {index} is out of bounds for {len(self)} rows")
        run = np.searchsorted(self.starts, rows, side="right") - 1
        physical = self.first[run] + rows - self.starts[run]
        if len(self.parts) == 1:
            return np.asarray(self.parts[0][physical])
        out = np.empty((*rows.shape, *self.shape[1:]), self.dtype)
        which = self.part[run]
        for number in np.unique(which):
            here = which == number
            out[here] = self.parts[number][physical[here]]
        return out

    def runs(self, first: np.ndarray, count: int) -> np.ndarray:
        """Rows r … r + count − 1 for each r of `first`, none of which leaves its run [count, first, …]."""
        out = np.empty((count, len(first), *self.shape[1:]), self.dtype)
        for where, part, physical in self._found(first):
            out[:, where] = part[np.arange(count)[:, None] + physical]
        return out

    def _found(self, first: np.ndarray) -> Iterator[tuple[np.ndarray | slice, np.ndarray, np.ndarray]]:
        """Which of the rows lie in which part, and where."""
        run = np.searchsorted(self.starts, first, side="right") - 1
        physical, which = self.first[run] + first - self.starts[run], self.part[run]
        if len(self.parts) == 1:
            yield slice(None), self.parts[0], physical
            return
        for number in np.unique(which):
            yield (here := np.flatnonzero(which == number)), self.parts[number], physical[here]

    def announce(self, first: np.ndarray, count: int) -> None:
        """Have the system read those rows from the disk, all at once, before they are asked for one by one."""
        for _, part, physical in self._found(first):
            announce(part, physical, count)

    def _range(self, start: int, stop: int, step: int) -> np.ndarray:
        if step != 1:
            return self[np.arange(start, stop, step)]
        pieces = []
        run = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self.starts[run + 1]))
            begin = int(self.first[run] + start - self.starts[run])
            pieces.append(self.parts[self.part[run]][begin : begin + end - start])
            start, run = end, run + 1
        if len(pieces) == 1:
            return np.asarray(pieces[0])
        return np.concatenate(pieces) if pieces else np.empty((0, *self.shape[1:]), self.dtype)


Rows = np.ndarray | RowView


def take_runs(array: Rows, first: np.ndarray, count: int) -> np.ndarray:
    """Rows r … r + count − 1 for each r of `first`, inside of an episode each [count, first, …]."""
    if isinstance(array, RowView):
        return array.runs(first, count)
    return np.asarray(array[np.arange(count)[:, None] + first])


def announce(array: Rows, first: np.ndarray, count: int) -> None:
    """Have the system read rows r … r + count − 1 for each r of `first`, where they lie on disk; returns at once."""
    if isinstance(array, RowView):
        array.announce(first, count)
        return
    file = getattr(array, "_mmap", None)
    if not isinstance(array, np.memmap) or not isinstance(file, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    begin = array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    size = array.strides[0]
    for row in first:
        at = begin + int(row) * size
        page = at - at % mmap.PAGESIZE
        file.madvise(mmap.MADV_WILLNEED, page, at + count * size - page)


def is_mapped(array: Rows) -> bool:
    """Whether the array lives on disk."""
    parts = array.parts if isinstance(array, RowView) else (array,)
    return any(isinstance(part, np.memmap) for part in parts)


def stack_runs(arrays: Sequence[Rows], which: np.ndarray, first: np.ndarray, length: np.ndarray, *, copy: bool) -> Rows:
    """Runs of rows in order: run k is `arrays[which[k]][first[k] : first[k] + length[k]]`.

    Without `copy`, or as soon as one of the arrays is on disk, the result is a view.
    """
    if copy and not any(is_mapped(array) for array in arrays):
        pieces = [arrays[w][f : f + n] for w, f, n in zip(which, first, length, strict=True)]
        return np.concatenate(pieces) if pieces else np.asarray(arrays[0][:0])
    parts: list[np.ndarray] = []
    offsets, tables = [], []
    for array in arrays:
        offsets.append(len(parts))
        tables.append(array if isinstance(array, RowView) else None)
        parts.extend(array.parts if isinstance(array, RowView) else [array])
    part, start = np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    for k, (w, f) in enumerate(zip(which, first, strict=True)):
        table = tables[w]
        run = 0 if table is None else int(np.searchsorted(table.starts, f, side="right")) - 1
        part[k] = offsets[w] + (0 if table is None else table.part[run])
        start[k] = f if table is None else table.first[run] + f - table.starts[run]
    return RowView(parts, part, start, length)
