"""Grids, sweeps and collection on real Ray clusters, of which a machine is lost; and what is refused."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from episode_samples import assert_equal, random_episodes
from koopax import KoopaxError
from koopax._cluster import Cluster, pack, unpack
from koopax.collection import collect
from koopax.data import save
from koopax.experiments.sweep import cells, figure, parse_values, summarise
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

BIN = Path(sys.executable).parent
# Twelve trainings.
SWEEP = ("sweep", "set.episodes", "--horizon", "5", "--batch-size", "4", "--option", "latent_size=8,12,16")
SWEEP += (
    "learning_rate=1e-3,3e-3",
    "encoder_hidden=[8]",
    "decoder_hidden=[8]",
    "--seeds",
    "2",
    "--validate-every",
    "20",
)
LOCAL = (*SWEEP, "--steps", "60", "--checkpoint-every", "10", "--no-early-stopping")


def koopax(*arguments, cwd, code=0):
    env = os.environ | {"RAY_worker_niceness": "0"}  # else a busy machine leaves them nothing
    settings = {"env": env, "capture_output": True, "text": True, "timeout": 1800}
    done = subprocess.run([BIN / "koopax", *map(str, arguments)], cwd=cwd, **settings)
    assert done.returncode == code, done.stderr
    return done


def test_values_of_options():
    assert parse_values("1,2,3") == (1, 2, 3)
    assert parse_values("1e-3,3e-3") == (1e-3, 3e-3)
    assert parse_values("[8],[16,16]") == ((8,), (16, 16))
    assert parse_values("paper,multiscale") == ("paper", "multiscale")
    assert parse_values("null,4") == (None, 4)


def test_cells_are_all_combinations():
    task = TrainTask("somewhere", "koopman", TrainConfig(seed=3))
    found = cells(task, {"latent_size": (8, 16), "learning_rate": (1e-3,), "model": ("koopman", "gru")}, 2)
    assert len({cell.name for cell in found}) == len(found) == 8
    assert {(c.task.model, c.task.model_options["latent_size"], c.task.train.seed) for c in found} == {
        (model, size, seed) for model in ("koopman", "gru") for size in (8, 16) for seed in (3, 4)
    }
    assert all(cell.task.train.learning_rate == 1e-3 for cell in found)
    for options, sentence in (
        ({}, "give --option"),
        ({"seed": (1, 2)}, "use --seeds"),
        ({"clip": (1, 1)}, "each once"),
    ):
        with pytest.raises(KoopaxError, match=sentence):
            cells(task, options, 1)
    with pytest.raises(KoopaxError, match="2 to 10000"):
        cells(task, {"clip": tuple(range(1, 20_000))}, 1)


def test_a_cell_that_was_ended_early_is_behind_those_that_were_not():
    curve = [{"step": 20, "seconds": 1.0, "validation_state": 0.5}]
    ended = {"cell": "a", "labels": {"clip": 1}, "error": None, "ended_early": True, "step": 20, "curve": curve}
    whole = {"cell": "b", "labels": {"clip": 2}, "error": {"state": {"normalised": 0.25}}, "step": 60, "curve": curve}
    (table,) = summarise([ended, whole]).sections
    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == ["0.25", "ended early"]
    assert len(figure([ended, whole]).axes[0].lines) == 2


def test_folders_travel_without_locks(tmp_path):
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / "7.npz").write_bytes(b"seven")
    (tmp_path / "a" / ".lock").write_text("")
    unpack(pack(tmp_path / "a"), tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").rglob("*") if path.is_file()] == ["7.npz"]
    assert pack(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("address", "sentence"), [("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"), ("here", "give HOST:PORT")]
)
def test_a_cluster_that_is_not_there_is_named(address, sentence):
    with pytest.raises(KoopaxError, match=sentence):
        Cluster(address)
    with pytest.raises(KoopaxError, match=sentence):
        collect("Pendulum-v1", steps=10, seed=0, cluster=address)


def test_without_ray_a_cluster_asks_for_the_extra(monkeypatch):
    monkeypatch.setattr("koopax._cluster.has_ray", lambda: False)
    with pytest.raises(KoopaxError, match=r"koopax\[cluster\]"):
        Cluster("auto")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Nodes:
    """A Ray cluster of two nodes on this machine, with one processor each."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        common = ("--num-cpus=1", "--object-store-memory=100000000", "--block")
        port = self.address.rpartition(":")[2]
        head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
        self.processes = [self._start(*head, *common)]
        self._wait(1)
        self.processes.append(self._start(f"--address={self.address}", *common, RAY_AUTH_MODE="token"))
        self._wait(2)

    @staticmethod
    def _start(*options, **environment):
        env = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"} | environment
        log = subprocess.DEVNULL
        return subprocess.Popen([BIN / "ray", "start", *options], env=env, stdout=log, stderr=log)

    def _wait(self, count, seconds=240):
        count_them = "import ray; print(sum(node['Alive'] for node in ray.nodes()))"
        script = f"from koopax._cluster import Cluster; Cluster('{self.address}'); {count_them}"
        until = time.monotonic() + seconds
        while time.monotonic() < until and all(process.poll() is None for process in self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds)
                if done.stdout.strip() == str(count):
                    return
            time.sleep(1)
        ended = [process.poll() for process in self.processes]
        raise AssertionError(f"the {count} nodes of {self.address} did not come up; their commands ended with {ended}")

    def kill(self, number):
        """The node and all that it has started."""
        import psutil

        process = psutil.Process(self.processes[number].pid)
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self.processes[number].wait()


@pytest.fixture
def nodes(tmp_path_factory, monkeypatch):
    """With a token, as there is on every machine where Ray has once started by itself."""
    # Paths of sockets must be short.
    import tempfile

    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text("7e5c" * 16)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with tempfile.TemporaryDirectory(prefix="kx", ignore_cleanup_errors=True) as folder:
        found = Nodes(folder)
        yield found
        for number, process in enumerate(found.processes):
            if process.poll() is None:
                found.kill(number)


@pytest.mark.slow
def test_twelve_cells_survive_the_loss_of_a_node_and_equal_a_local_run(nodes, tmp_path):
    save(random_episodes([30] * 12), tmp_path / "set.episodes")
    command = [BIN / "koopax", *LOCAL, "--out", "there", "--cluster", nodes.address]
    driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 900
    while len(list((tmp_path / "there/cells").glob("*.json"))) < 3:
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < until
        time.sleep(0.5)
    nodes.kill(1)
    _, said = driver.communicate(timeout=900)
    assert driver.returncode == 0, said
    koopax(*LOCAL, "--out", "here", cwd=tmp_path)
    names = sorted(path.name for path in (tmp_path / "here/cells").iterdir())
    assert len(names) == 12
    for name in names:
        here, there = (json.loads((tmp_path / where / "cells" / name).read_text()) for where in ("here", "there"))
        assert there["error"]["state"] == here["error"]["state"]
        assert there["step"] == here["step"] == 60
        assert (tmp_path / "there/runs" / name.removesuffix(".json") / "model.koopax").is_file()
    assert (tmp_path / "there/table.md").is_file()
    assert (tmp_path / "there/figure.png").is_file()


@pytest.mark.slow
def test_a_lost_job_goes_on_from_its_checkpoint(nodes, tmp_path):
    def work(folder):
        mark = folder / "checkpoints" / "1.npz"
        if mark.exists():
            return mark.read_text()
        mark.parent.mkdir(parents=True)
        mark.write_text("begun before")
        time.sleep(5)
        os._exit(1)

    with Cluster(nodes.address) as cluster:
        found = dict(cluster.run({"job": work}, {"job": tmp_path / "job"}))
    assert found == {"job": "begun before"}
    assert (tmp_path / "job/checkpoints/1.npz").is_file()


@pytest.mark.slow
def test_collection_on_a_cluster_is_collection_here(nodes):
    settings = {"steps": 600, "seed": 3, "noise": 0.1}
    there = collect("Pendulum-v1", "random", cluster=nodes.address, **settings)
    assert_equal(there, collect("Pendulum-v1", "random", workers=0, **settings))


@pytest.mark.slow
def test_a_sweep_ends_those_early_that_are_behind(tmp_path):
    save(random_episodes([30] * 12), tmp_path / "set.episodes")
    # Whether learning helps on random numbers or not, one of the last two is behind.
    options = ("--option", "learning_rate=1e-3,3e-3,1e-9,1e-2", "latent_size=8", "--steps", 200, "--validate-every", 10)
    settings = ("sweep", "set.episodes", "--horizon", 5, "--batch-size", 4, *options, "--out", "swept")
    said = koopax(*settings, cwd=tmp_path)
    found = [json.loads(path.read_text()) for path in (tmp_path / "swept/cells").iterdir()]
    assert len(found) == 4
    assert any(cell.get("ended_early") for cell in found)
    whole = [cell for cell in found if not cell.get("ended_early")]
    assert whole
    assert np.isfinite([cell["error"]["state"]["normalised"] for cell in whole]).all()
    assert "ended early" in said.stdout
    assert (tmp_path / "swept/figure.png").is_file()
    assert koopax(*settings, cwd=tmp_path).stdout == said.stdout  # nothing is trained again
