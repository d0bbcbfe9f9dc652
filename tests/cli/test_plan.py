"""`koopax plan` and `koopax bench plan` as a user meets them, in real processes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

KOOPAX = Path(sys.executable).with_name("koopax")


def koopax(*arguments, cwd, check=True):
    done = subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Somebody's folder: random data of a pendulum, a hardly trained model of it, and a reward function."""
    folder = tmp_path_factory.mktemp("user")
    koopax("data", "collect", "--env", "Pendulum-v1", "--steps", 800, "--out", "pendulum.npz", cwd=folder)
    small = ("--horizon", 5, "--batch-size", 8, "--latent-size", 8, "--steps", 10)
    koopax("train", "pendulum.npz", *small, "--out", "runs/a", cwd=folder)
    (folder / "rewards.py").write_text(
        "import jax.numpy as jnp\n\n"
        "def upright(states, actions, next_states):\n"
        '    """Pendulum-v1\'s own reward."""\n'
        "    angle = jnp.arctan2(states[..., 1], states[..., 0])\n"
        "    return -(angle**2 + 0.1 * states[..., 2] ** 2 + 0.001 * actions[..., 0] ** 2)\n"
    )
    return folder


# Small networks and windows as long as a plan: half a minute of training on one core.
PENDULUM = (
    *("--horizon", 20, "--steps", 1500, "--latent-size", 64, "--consistency-weight", 0),
    *("--option", "encoder_hidden=[128]", "--option", "decoder_hidden=[128]"),
)
PLAN = ("plan", "runs/a", "--env", "Pendulum-v1", "--episodes", 2, "--horizon", 3)


@pytest.mark.slow
def test_json_document(folder):
    document = json.loads(koopax(*PLAN, "--samples", 8, "--reward", "rewards:upright", "--json", cwd=folder).stdout)
    assert len(document["returns"]) == 2
    assert document["mean_return"] == pytest.approx(np.mean(document["returns"]))
    assert -2000 < document["mean_return"] < 0
    assert document["ms_per_decision"] > 0
    assert -2000 < document["random_return"] < 0
    assert document["model"] == "runs/a"
    expected = {"env": "Pendulum-v1", "planner": "icem", "horizon": 3, "samples": 8, "reward": "rewards:upright"}
    assert document["settings"].items() >= (expected | {"seed": 0, "episodes": 2, "reencode_every": None}).items()
    assert document["settings"]["iterations"] >= 1


@pytest.mark.slow
def test_lqr_prints_a_table(folder):
    done = koopax(*PLAN, "--planner", "lqr", "--goal", 1, 0, 0, "--action-cost", 0.1, cwd=folder)
    assert "mean return" in done.stdout


@pytest.mark.slow
def test_ctrl_c_reports_what_is_finished(folder):
    command = [str(KOOPAX), *map(str, PLAN), "--environments", "1", "--episodes", "100000", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        seen = ""
        for line in process.stderr:  # until the first episode is finished, however long that takes
            seen += line
            if line.startswith("episode 1 of 100000: return"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130, seen + err
    assert "Traceback" not in seen + err
    document = json.loads(out)
    assert document["interrupted"]
    assert document["random_return"] is None
    assert f"stopped after {len(document['returns'])} of 100000 episodes" in err
    assert f"{document['returns'][0]:.1f}" in seen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "nowhere", "--env", "Pendulum-v1"), "no run or model file"),
        (("plan", "runs/a", "--env", "HalfCheetah-v5"), "(17, 6), but the model was trained on (3, 1)"),
        ((*PLAN, "--planner", "mpi"), "unknown planner 'mpi': did you mean 'mppi'"),
        ((*PLAN, "--reward", "rewards:downright"), "can't be imported"),
        ((*PLAN, "--planner", "lqr", "--goal", 1, 0), "--goal has 2 numbers"),
        (
            (*PLAN, "--planner", "lqr", "--goal", 1, 0, 0, "--samples", 8),
            "--samples means nothing to the planner 'lqr'",
        ),
        ((*PLAN, "--goal", 1, 0, 0), "--goal means nothing to the planner 'icem'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, refused, arguments, message):
    assert message in refused(folder, arguments)


@pytest.mark.slow
def test_bench_plan(folder):
    settings = ("--cores", "mlp", "koopman", "--horizons", 2, 3, "--samples", 16, "--rounds", 1)
    document = json.loads(koopax("bench", "plan", *settings, "--json", cwd=folder).stdout)
    found = {(row["core"], row["horizon"]): row for row in document["results"]}
    assert set(found) == {("mlp", 2), ("mlp", 3), ("koopman", 2), ("koopman", 3)}
    for row in found.values():
        assert row["samples"] == 16
        assert set(row["parts"]) == {"encode", "propose", "dynamics", "reward", "value", "rest"}
        assert sum(row["parts"].values()) == pytest.approx(row["ms_per_decision"], rel=0.01)


@pytest.mark.slow
def test_a_model_of_random_data_swings_a_pendulum_up(tmp_path):
    """From nothing to control: collect, train, plan. Doing nothing gives about −1200, the best controllers −150."""
    koopax("data", "collect", "--env", "Pendulum-v1", "--steps", 20_000, "--out", "pendulum.npz", cwd=tmp_path)
    koopax("train", "pendulum.npz", *PENDULUM, "--out", "runs/pendulum", cwd=tmp_path)
    swing = ("plan", "runs/pendulum", "--env", "Pendulum-v1", "--episodes", 20, "--json")
    document = json.loads(koopax(*swing, cwd=tmp_path).stdout)
    assert len(document["returns"]) == 20
    assert document["mean_return"] > -250
