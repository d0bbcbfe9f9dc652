"""The fingerprint tells episodes apart by what they hold, not by how they are kept."""

from dataclasses import replace

import numpy as np
import pytest

from koopax.data import Episodes, load, save
from koopax.data.fingerprint import fingerprint


@pytest.fixture(scope="module")
def episodes():
    rng = np.random.default_rng(0)
    lengths = (5, 3, 7)
    return Episodes.from_arrays(
        [rng.normal(size=(n + 1, 2)) for n in lengths],
        [rng.normal(size=(n, 1)) for n in lengths],
        [rng.normal(size=n) for n in lengths],
    )


def changed(episodes, name):
    array = np.array(getattr(episodes, name))
    array.reshape(-1)[len(array) // 2] += 1e-3
    return replace(episodes, **{name: array})


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_any_number_counts(episodes, name):
    assert fingerprint(changed(episodes, name)) != fingerprint(episodes)


def test_order_boundaries_and_durations_count(episodes):
    others = [
        episodes.select([1, 0, 2]),
        episodes.select([0, 1]),
        replace(episodes, starts=np.array([0, 5, 10, 18])),
        replace(episodes, durations=np.ones(18, np.float32)),
    ]
    found = {fingerprint(each) for each in (episodes, *others)}
    assert len(found) == 5


def test_names_and_the_way_they_are_kept_do_not_count(episodes, tmp_path):
    save(episodes, tmp_path / "a.npz")
    save(episodes, tmp_path / "b.episodes")
    mapped = load(tmp_path / "b.episodes", memory_map=True)
    assert mapped.is_memory_mapped
    assert fingerprint(mapped) == fingerprint(load(tmp_path / "a.npz")) == fingerprint(episodes)
