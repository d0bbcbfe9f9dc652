"""Runs to report on: models of a real Hopper and an imagined pendulum, agents, and folders that can't be used."""

import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import numpy as np
import pytest
from filelock import FileLock
from run_samples import HORIZON, sac_run, train, untrained

from koopax.collection import collect
from koopax.data import Episodes, save
from koopax.reporting.build import write_report
from koopax.reporting.models import Effort


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make something at a path that all test processes share; whoever comes later finds it there."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        path = shared / name
        with FileLock(f"{path}.lock"):
            if not path.with_suffix(".made").exists():
                make(path)
                path.with_suffix(".made").touch()
        return path

    return make_once


def random_hopper(path: Path) -> None:
    collect("Hopper-v5", "random", 500, seed=0, workers=1, out=str(path))


def pendulum_swings(path: Path) -> None:
    """Swings that no simulator knows of."""
    rng = np.random.default_rng(0)
    time = np.arange(31)
    states = [np.stack([np.sin(0.3 * time + p), np.cos(0.3 * time + p)], 1) for p in rng.uniform(0, 6, 8)]
    actions = [0.1 * rng.normal(size=(30, 1)) for _ in states]
    save(Episodes.from_arrays(states, actions, [state[:-1, 0] for state in states]), path)


def all_runs(place: Path) -> None:
    data = place.parent
    random_hopper(data / "hopper.npz")
    pendulum_swings(data / "pendulum.npz")
    trained = train(data / "hopper.npz", "koopman", place / "koopman-0")
    untrained(trained, place / "koopman-1", "koopman", seed=1)
    untrained(trained, place / "mlp", "mlp")
    untrained(trained, place / "pendulum", "mlp", source=data / "pendulum.npz")
    sac_run(place / "sac")
    sac_run(place / "sac-1", seed=1, level=2500.0)
    for name in ("future", "unfinished"):
        (place / name).mkdir()
    (place / "future" / "config.json").write_text('{"format": 99, "train": {}, "model": {}}')
    document = json.loads((place / "mlp" / "config.json").read_text())
    document["train"]["seed"] = 1
    (place / "unfinished" / "config.json").write_text(json.dumps(document))
    (place / "unfinished" / "metrics.jsonl").write_bytes((place / "mlp" / "metrics.jsonl").read_bytes())


@pytest.fixture(scope="session")
def folders(once) -> dict[str, Path]:
    """Run folders by name."""
    return {path.name: path for path in sorted(once("runs", all_runs).iterdir())}


@pytest.fixture(scope="session")
def page(once, folders) -> Path:
    """A report on all of them."""
    effort = Effort(horizon=HORIZON, windows=40, trajectories=3)
    return once("report.html", lambda path: write_report(list(folders.values()), path, effort=effort))
