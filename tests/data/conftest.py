from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _own_folders(own_folders):
    """For every test here."""


@pytest.fixture
def d4rl_file(tmp_path) -> Path:
    """A file in D4RL's format, with a terminal, a timeout and an unflagged tail."""
    import h5py

    generator = np.random.default_rng(1)
    observations = generator.normal(size=(12, 4)).astype("f4")
    following = np.concatenate([observations[1:], generator.normal(size=(1, 4)).astype("f4")])
    terminals, timeouts = np.zeros(12, bool), np.zeros(12, bool)
    terminals[4], timeouts[8] = True, True
    following[[4, 8]] = [[10, 11, 12, 13], [20, 21, 22, 23]]
    path = tmp_path / "hopper_medium-v2.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"], file["next_observations"] = observations, following
        file["actions"] = generator.normal(size=(12, 2)).astype("f4")
        file["rewards"] = generator.normal(size=12).astype("f4")
        file["terminals"], file["timeouts"] = terminals, timeouts
        file["infos/qpos"] = np.zeros((12, 3))
    return path
