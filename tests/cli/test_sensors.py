"""Histories, data without actions and whole episodes on the command line: real processes, real files."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.training import model_and_test_episodes

KOOPAX = Path(sys.executable).with_name("koopax")
TABLE = ("log.csv", "--state", "angle", "--reward", "none", "--horizon", 6, "--batch-size", 4, "--steps", 2)
SMALL = ("--latent-size", 8, "--option", "encoder_hidden=[6]", "decoder_hidden=[6]")


def koopax(*arguments, cwd):
    settings = {"env": os.environ, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, **settings)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A pendulum's angle, and the torque on it; its speed is not measured."""
    folder = tmp_path_factory.mktemp("sensors")
    rng = np.random.default_rng(0)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "angle", "torque"])
        for trial in range(10):
            angle, speed = rng.normal(size=2)
            for _ in range(31):
                torque = rng.normal()
                writer.writerow([trial, angle, torque])
                speed += 0.05 * (-np.sin(angle) - 0.1 * speed + torque)
                angle += 0.05 * speed
    return folder


@pytest.fixture(scope="module")
def folder(log):
    """With a model that sees a history of it, and one that sees no torque."""
    koopax("train", *TABLE, "--action", "torque", "--model", "koopman", *SMALL, "--history", 4, "--out", "a", cwd=log)
    koopax("train", *TABLE, "--action", "none", "--model", "gru", "--latent-size", 6, "--out", "b", cwd=log)
    return log


@pytest.mark.slow
def test_a_history_goes_through_training_and_evaluation(folder):
    assert json.loads((folder / "a" / "config.json").read_text())["model"]["history"] == 4
    shown = json.loads(koopax("evaluate", "a", "--horizon", 6, "--json", cwd=folder).stdout)
    assert np.isfinite(shown["state"]["normalised"])
    assert np.isfinite(shown["baselines"]["dmdc"]["state"]["normalised"])


@pytest.mark.slow
def test_another_table_is_read_by_the_columns_of_the_run(folder):
    (folder / "other.csv").write_text((folder / "log.csv").read_text().replace(",-", ","))  # other numbers
    with pytest.warns(KoopaxWarning, match="is not the data"):
        _, episodes = model_and_test_episodes(folder / "a", str(folder / "other.csv"))
    assert (episodes.state_size, episodes.action_size, episodes.has_rewards) == (1, 1, False)
    # What is named goes before what the run has.
    with pytest.warns(KoopaxWarning, match="is not the data"), pytest.raises(KoopaxError, match="sizes"):
        model_and_test_episodes(folder / "a", str(folder / "other.csv"), action="none")


@pytest.mark.slow
def test_whole_episodes_have_an_error_and_a_fit_for_each_column(folder):
    for run, steps in (("a", 27), ("b", 30)):
        found = json.loads(koopax("evaluate", run, "--whole-episodes", "--json", cwd=folder).stdout)
        assert set(found["columns"]) == {"angle"}
        assert set(found["columns"]["angle"]) == {"rmse", "fit_percent"}
        assert found["longest"] == steps
    assert "fit" in koopax("evaluate", "a", "--whole-episodes", cwd=folder).stdout


@pytest.mark.slow
def test_both_are_reported(folder):
    koopax("report", "a", "b", "--out", "report.html", cwd=folder)
    text = (folder / "report.html").read_text()
    assert "can't" not in text.split("<script", maxsplit=1)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--model", "koopman", "--history", 0), "history is 0"),
        (("--model", "koopman", "--history", 40), "a history of 40 observations"),
    ],
)
def test_bad_input(log, refused, changes, message):
    assert message in refused(log, ("train", *TABLE, "--action", "torque", "--out", "c", *changes))
