"""Runs to report on: models of a real Hopper and an imagined pendulum, agents, and folders that can't be used."""

import json
import os
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import numpy as np
import pytest
from run_samples import HORIZON, sac_run, train, untrained

from koopax.data import Episodes, collect, save
from koopax.report.build import write_report
from koopax.report.models import Effort


@pytest.fixture(scope="session")
def hopper(tmp_path_factory) -> Path:
    """A few hundred steps of a Hopper that moves at random."""
    path = tmp_path_factory.mktemp("data") / "hopper.npz"
    collect("Hopper-v5", "random", 500, seed=0, workers=1, out=str(path))
    return path


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory) -> Path:
    """Swings that no simulator knows of."""
    rng = np.random.default_rng(0)
    time = np.arange(31)
    states = [np.stack([np.sin(0.3 * time + p), np.cos(0.3 * time + p)], 1) for p in rng.uniform(0, 6, 8)]
    path = tmp_path_factory.mktemp("data") / "pendulum.npz"
    save(
        Episodes.from_arrays(
            states, [np.zeros((30, 1)) + 0.1 * rng.normal(size=(30, 1)) for _ in states], [s[:-1, 0] for s in states]
        ),
        path,
    )
    return path


@pytest.fixture(scope="session")
def folders(tmp_path_factory, hopper, pendulum) -> dict[str, Path]:
    """Run folders by name."""
    place = tmp_path_factory.mktemp("runs")
    trained = train(hopper, "koopman", place / "koopman-0")
    found = {
        "koopman-0": trained,
        "koopman-1": untrained(trained, place / "koopman-1", "koopman", seed=1),
        "mlp": untrained(trained, place / "mlp", "mlp"),
        "pendulum": train(pendulum, "koopman", place / "pendulum"),
        "sac": sac_run(place / "sac"),
        "sac-1": sac_run(place / "sac-1", seed=1, level=2500),
    }
    found["future"] = place / "future"
    found["future"].mkdir()
    (found["future"] / "config.json").write_text('{"format": 99, "train": {}, "model": {}}')
    found["unfinished"] = place / "unfinished"
    found["unfinished"].mkdir()
    (found["unfinished"] / "metrics.jsonl").write_bytes((found["mlp"] / "metrics.jsonl").read_bytes())
    document = json.loads((found["mlp"] / "config.json").read_text())
    document["train"]["seed"] = 1
    (found["unfinished"] / "config.json").write_text(json.dumps(document))
    return found


@pytest.fixture(scope="session")
def page(tmp_path_factory, folders) -> Path:
    """A report on all of them."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(list(folders.values()), out, effort=Effort(horizon=HORIZON, windows=40, trajectories=3))
    return out
