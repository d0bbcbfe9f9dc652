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
from koopax.reporting.build import describe, write_report
from koopax.reporting.models import Effort
from koopax.reporting.page import page as page_of
from koopax.reporting.runs import read_runs


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


EVIL = (
    "<script>window.hacked = 1</script>",
    '<a href="javascript:window.hacked=2">javascript:window.hacked=2</a>',
    "<img src=x onerror='window.hacked = 3'> &lt;b&gt; %{x}",
)
"""Names that a page must show as they are."""


def evil_swings(path: Path) -> None:
    """Swings without rewards whose columns have names that want to be markup."""
    rng = np.random.default_rng(0)
    phase = 0.3 * np.arange(31)
    states = [np.stack([np.sin(phase + p), np.cos(phase + p)], 1) for p in rng.uniform(0, 6, 8)]
    actions = [0.1 * rng.normal(size=(30, 1)) for _ in states]
    names = {"state_names": EVIL[:2], "action_names": EVIL[2:], "units": {EVIL[0]: EVIL[1]}}
    save(Episodes.from_arrays(states, actions, **names), path)


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
def evil_page(once, folders) -> Path:
    """A report on data without rewards, with evil names wherever data or folders give a name."""

    def make(path: Path) -> None:
        place = path.with_suffix("")
        place.mkdir()
        evil_swings(place / "swings.npz")
        run = untrained(folders["koopman-0"], place / "a <b>run", "koopman", source=place / "swings.npz")
        document = describe(read_runs([run, folders["sac"], folders["sac-1"]]), Effort(HORIZON, 20, 2), print)
        document["data"][0]["models"][0]["label"] = EVIL[1]
        document["data"][0]["name"] = document["agents"][0]["task"] = document["title"][0] = EVIL[0]
        document["agents"][0]["groups"][0]["label"] = document["aggregates"]["agents"][0]["agent"] = EVIL[2]
        document["problems"] = [{"run": EVIL[0], "message": EVIL[1]}]
        path.write_text(page_of(document | {"reading": [*document["reading"], *EVIL]}))

    return once("evil.html", make)


@pytest.fixture(scope="session")
def page(once, folders) -> Path:
    """A report on all of them."""
    effort = Effort(horizon=HORIZON, windows=40, trajectories=3)
    return once("report.html", lambda path: write_report(list(folders.values()), path, effort=effort))
