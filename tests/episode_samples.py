"""Episodes to test with."""

import os
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from koopax.data import Episodes, load, save


def random_episodes(lengths, *, seed=0, states=3, actions=2, irregular=False, sources=None, **options) -> Episodes:
    """Episodes of normal noise with these lengths."""
    generator = np.random.default_rng(seed)
    return Episodes.from_arrays(
        [generator.normal(size=(n + 1, states)) for n in lengths],
        [generator.normal(size=(n, actions)) for n in lengths],
        [generator.normal(size=n) for n in lengths],
        durations=[generator.uniform(0.5, 2, size=n) for n in lengths] if irregular else None,
        terminated=generator.random(len(lengths)) < 0.5,
        sources=sources,
        **options,
    )


def assert_equal(a: Episodes, b: Episodes, *, metadata: bool = True) -> None:
    """The same numbers to the last bit."""
    for name in ("observations", "actions", "rewards", "durations", "starts", "terminated", "sources"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(np.asarray(left), np.asarray(right), err_msg=name)
    if metadata:
        assert a.metadata == b.metadata


def files_under(folder) -> list[str]:
    """Every file and folder, hidden ones too."""
    return sorted(os.path.relpath(os.path.join(root, n), folder) for root, ds, fs in os.walk(folder) for n in ds + fs)


def mapped(episodes: Episodes, folder: Path) -> Episodes:
    """The same set, memory-mapped."""
    return load(save(episodes, folder / "set.episodes", overwrite=True), memory_map=True)


DESTINATIONS = ["a.npz", "a.parquet", "a.csv", "a.episodes", "mine/some/set-v3", "./folder"]
"""One for every format that is written."""


def write_table(path, **changes):
    """A Parquet table with unusual column names and scattered rows."""
    columns = {
        "trial": ["b", "b", "a", "b", "a"],
        "clock": [0.0, 0.1, 5.0, 0.3, 5.1],
        "x": [1.0, 2.0, 10.0, 3.0, 20.0],
        "v": [0, 1, 2, 3, 4],
        "force": [0.1, 0.2, 0.3, None, None],
        "gain": [1.0, 1.0, 2.0, None, None],
    } | changes
    pa.parquet.write_table(pa.table({k: v for k, v in columns.items() if v is not None}), path)


def write_hdf5(path, **arrays):
    """An HDF5 file with these arrays."""
    with h5py.File(path, "w") as file:
        for key, value in arrays.items():
            file[key] = value
