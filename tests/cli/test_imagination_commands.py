"""`koopax agent train sac --in RUN` as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

KOOPAX = Path(sys.executable).with_name("koopax")


def koopax(*arguments, cwd):
    done = subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_from_data_to_a_policy_that_never_saw_the_environment(tmp_path, refused):
    koopax("data", "collect", "--env", "Pendulum-v1", "--steps", 1000, "--out", "pendulum.npz", cwd=tmp_path)
    koopax("train", "pendulum.npz", "--model", "dmdc", "--out", "runs/a", cwd=tmp_path)
    small = ("--evaluate-episodes", 1, "--evaluate-every", 2500)
    koopax("agent", "train", "sac", "--in", "runs/a", *small, "--steps", 2500, "--out", "runs/b", cwd=tmp_path)
    koopax("agent", "train", "sac", "--resume", "--steps", 5000, "--out", "runs/b", cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "runs/b/metrics.jsonl").read_text().splitlines()]
    assert [line["decisions"] for line in lines] == [0, 2500, 5000]
    assert {line["environment_steps"] for line in lines} == {0}
    config = json.loads((tmp_path / "runs/b/config.json").read_text())
    assert config["task"] == "Pendulum-v1"
    assert config["kind"] == "sac-imagination"
    told = ["agent", "train", "sac", "--in", "runs/a", "--out", "runs/c", "--task"]
    assert "has 2 observations and 1 actions" in refused(tmp_path, [*told, "MountainCarContinuous-v0"])
    resume = ["agent", "train", "sac", "--resume", "--seed", "3", "--out", "runs/b"]
    assert "--seed 3 differs from the 0" in refused(tmp_path, resume)


def test_a_run_that_is_not_there(tmp_path, refused):
    said = refused(tmp_path, ["agent", "train", "sac", "--in", "nothing", "--out", "runs/b"])
    assert "there is no run or model file at 'nothing'" in said
    assert not (tmp_path / "runs").exists()
