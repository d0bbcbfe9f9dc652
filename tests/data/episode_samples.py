"""Episodes to test with."""

import os
from pathlib import Path

import numpy as np

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
