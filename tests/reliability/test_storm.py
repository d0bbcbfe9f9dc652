"""A small storm: a training killed at random moments ends where it would have ended; `make storm` does it at length."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from storm import storm
from versions import lowest


@pytest.mark.slow
def test_a_training_that_is_killed_ends_where_it_would_have(tmp_path):
    found = storm("train", 2, np.random.default_rng(1), tmp_path)
    assert found["compared"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seeds", "auto", "tdmpc", "pixels", "collect", "grid"])
def test_so_does_everything_else(name, tmp_path):
    assert storm(name, 4, np.random.default_rng(1), tmp_path)["compared"] >= 2


@pytest.mark.slow
def test_many_shapes_in_one_process():
    load = Path(__file__).with_name("load.py")
    done = subprocess.run([sys.executable, load, "--rollouts", "3000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lowest_versions_are_read_from_ranges():
    assert lowest(["jax>=0.8", "mujoco>=3.1,<4", "koopax[a]>=1"]) == ["jax==0.8", "mujoco==3.1", "koopax[a]==1"]
    with pytest.raises(AssertionError, match="no lowest version"):
        lowest(["jax"])
