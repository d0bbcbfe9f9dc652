"""Intervals and ensembles from the command line, as a user meets them."""

import json

import numpy as np
import pytest
from test_cli import KOOPAX, TABLE, koopax  # noqa: F401  (the real command)

TRAIN = ("train", "log.csv", *TABLE, "--horizon", 10, "--batch-size", 8, "--latent-size", 8, "--steps", 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a log of a swing, and two seeds trained on it."""
    folder = tmp_path_factory.mktemp("user")
    rng = np.random.default_rng(0)
    lines = ["trial,angle,speed,torque"]
    for trial in range(40):
        angle, speed = rng.normal(size=2)
        for _ in range(31):
            torque = rng.normal()
            lines.append(f"{trial},{angle},{speed},{torque}")
            speed += 0.05 * (-np.sin(angle) - 0.1 * speed + torque)
            angle += 0.05 * speed
    (folder / "log.csv").write_text("\n".join(lines))
    koopax(*TRAIN, "--seeds", 2, "--model", "koopman-stochastic", "--out", "runs/two", cwd=folder)
    return folder


def evaluate(run, *options, folder, check=True):
    return koopax("evaluate", run, "--horizon", 10, "--windows", 100, *options, cwd=folder, check=check)


@pytest.mark.slow
def test_evaluate_tells_how_often_intervals_hold(folder):
    found = json.loads(evaluate("runs/two/seed-0", "--level", 0.9, "--json", folder=folder).stdout)
    assert found["model"] == "koopman-stochastic"
    held = found["coverage"]
    assert held["level"] == 0.9
    assert len(held["per_step"]) == 10
    assert np.mean(held["per_step"]) > 0.7
    assert held["mean_width"] > 0
    assert held["reward"] is None


@pytest.mark.slow
def test_seeds_are_an_ensemble(folder):
    shown = evaluate("runs/two", "--level", 0.8, folder=folder).stdout
    assert "intervals of level 0.8" in shown
    found = json.loads(evaluate("runs/two", "--level", 0.8, "--json", folder=folder).stdout)
    assert found["model"] == "2 × koopman-stochastic"
    assert found["ensemble"]["members"] == 2
    assert len(found["ensemble"]["disagreement"]) == 10
    assert np.mean(found["coverage"]["per_step"]) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "options", "said"),
    [
        ("runs/two", ("--level", 1.5), "level is 1.5: use a share between 0 and 1"),
        ("runs/two/seed-0", ("--level", 0.9, "--horizon", 31), "over 31 steps, but were calibrated over 30"),
        ("runs/two", ("--level", 0.9, "--best"), "never calibrated"),
    ],
)
def test_what_can_not_be_told_is_one_sentence(run, options, said, folder):
    done = evaluate(run, *options, folder=folder, check=False)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_risk_needs_an_ensemble(folder):
    done = koopax("plan", "runs/two/seed-0", "--env", "Pendulum-v1", "--risk", 1, cwd=folder, check=False)
    assert done.returncode == 2
    assert "risk is 1.0, but it weighs the disagreement of several seeds" in " ".join(done.stderr.split())
