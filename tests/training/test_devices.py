"""Several devices take the steps of one; several real processes too, and they tell when one of them is gone."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from episode_samples import random_episodes
from koopax import KoopaxError
from koopax.data import save
from koopax.training.devices import Devices
from koopax.training.meeting import meet
from koopax.training.resources import Hosts, Resources

KOOPAX = Path(sys.executable).with_name("koopax")
TRAIN = ("train", "set.episodes", "--model", "koopman", "--horizon", "5", "--latent-size", "8", "--batch-size", "8")
TRAIN += ("--option", "encoder_hidden=[8]", "decoder_hidden=[8]", "--log-every", "10", "--validate-every", "25")


def flags(devices):
    known = os.environ.get("XLA_FLAGS", "")
    return {"XLA_FLAGS": f"{known} --xla_force_host_platform_device_count={devices}"}


def start(*arguments, cwd, devices=1, **more):
    command = [KOOPAX, *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=os.environ | flags(devices), **streams, **more)


def done(process, *, code=0, timeout=600):
    out, err = process.communicate(timeout=timeout)
    if process.returncode != code:
        pytest.fail(f"ended with {process.returncode} instead of {code}:\n{out}\n{err}")
    return " ".join(err.split())


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return np.asarray([line["loss"] for line in lines if "loss" in line])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    save(random_episodes([30] * 12), folder / "set.episodes")
    return folder


def hosts(number, port, *, processes=2):
    return ("--distributed", "--coordinator", f"127.0.0.1:{port}", "--process-id", number, "--processes", processes)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_batch_that_devices_cannot_share_is_refused():
    class Four(Devices):
        count = 4

    assert Four().share(64) == 16
    with pytest.raises(
        KoopaxError, match="4 devices can't share a batch of 66 windows evenly: use a batch of 64 or 68"
    ):
        Four().share(66)
    with pytest.raises(KoopaxError, match="use a batch of 4,"):
        Four().share(3)
    with pytest.raises(KoopaxError, match="99 devices are asked for"):
        Devices.choose(99)
    with pytest.raises(KoopaxError, match="devices is 0"):
        Resources(devices=0)
    assert Devices.choose(None).mesh is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"coordinator": "a:1"}, "add --distributed"),
        ({"distributed": True, "coordinator": "a:1", "process_id": 0}, "need --processes"),
        ({"distributed": True, "coordinator": "a:1", "process_id": 2, "processes": 2}, "use 0 to 1"),
        ({"distributed": True, "coordinator": "a", "process_id": 0, "processes": 2}, "give HOST:PORT"),
        ({"distributed": True, "coordinator": ":80", "process_id": 0, "processes": 2}, "give HOST:PORT"),
        ({"distributed": True, "coordinator": "a:0", "process_id": 0, "processes": 2}, "give HOST:PORT"),
        ({"distributed": True, "coordinator": "a:99999", "process_id": 0, "processes": 2}, "give HOST:PORT"),
        ({"distributed": True, "connect_seconds": 0}, "use 1 or more"),
    ],
)
def test_hosts_that_are_no_hosts_are_refused(options, sentence):
    with pytest.raises(KoopaxError, match=sentence):
        Hosts(**options)


def meeting(*numbers, processes=3, seconds=10.0, port=None):
    """What each of these processes ends the meeting with: None, or its sentence."""
    port = port or free_port()

    def come(number):
        try:
            return meet(f"127.0.0.1:{port}", number, processes, seconds)
        except KoopaxError as error:
            return str(error)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(come, numbers))


def test_processes_meet_in_any_order():
    assert meeting(2, 0, 1) == [None] * 3
    assert meeting(0, processes=1) == [None]


def test_who_does_not_come_is_named():
    first, second = meeting(0, 1, seconds=0.5)
    assert re.fullmatch(r"process 2 of 3 did not come to 127\.0\.0\.1:\d+ within 0\.5 s: start all.*", first)
    assert "did not meet" in second or "has ended" in second
    (alone,) = meeting(1, seconds=0.5)
    assert re.match(r"nobody answers at the coordinator's address 127\.0\.0\.1:\d+ after 0\.5 s", alone)


def test_who_does_not_belong_there_is_told_so():
    found = meeting(0, 1, 1, processes=3, seconds=1.0)
    assert sum("there is a process 1 already" in said for said in found if said) == 1
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meeting, 0, processes=2, seconds=1.0, port=port)
        other = pool.submit(meeting, 1, processes=4, seconds=1.0, port=port)
        assert other.result() == ["process 1 is one of 4, process 0 one of 2: give all the same number."]
        assert "process 1 of 2 did not come" in first.result()[0]


def test_a_port_that_somebody_else_has_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(meeting, 1, port=port)
            caller, _ = other.accept()
            caller.sendall(b"\0\0\6\4 something else\n")
            caller.close()
            assert "is not process 0 of this training" in waiting.result()[0]
    with socket.create_server(("", port), reuse_port=False) as other:
        assert f"process 0 can't listen at the coordinator's address 127.0.0.1:{port}" in meeting(0, port=port)[0]


def test_a_process_that_is_gone_is_told_whatever_jax_raises(monkeypatch):
    import jax

    from koopax.training import hosts as others

    lost = "UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:13698"
    for error, wanted in (
        (ValueError(lost), others.LostError),
        (jax.errors.JaxRuntimeError("INTERNAL: failed"), others.LostError),
        (ValueError("shapes differ"), ValueError),
    ):
        monkeypatch.setattr(others, "several", lambda: True)
        with pytest.raises(wanted), others.collective():
            raise error
        monkeypatch.setattr(others, "several", lambda: False)
        with pytest.raises(type(error)), others.collective():
            raise error


def test_processes_with_other_versions_are_refused(monkeypatch):
    from koopax.training import hosts as others

    def told(about):
        return np.frombuffer(json.dumps(about, sort_keys=True).encode().ljust(4096), np.uint8)

    first = {"jax": "0.10", "koopax": "1.0"}
    monkeypatch.setattr(others, "several", lambda: True)
    monkeypatch.setattr(others, "gather", lambda mine: np.stack([mine, told(first | {"jax": "0.9"})]))
    with pytest.raises(KoopaxError, match=r"process 1 has jax 0\.9, process 0 0\.10: all processes need the same"):
        others.check_alike(first)
    monkeypatch.setattr(others, "gather", lambda mine: np.stack([mine, told(first)]))
    others.check_alike(first)


def test_a_coordinator_that_is_not_there_is_named(folder):
    port = free_port()
    process = start(*TRAIN, *hosts(1, port), "--connect-seconds", 1, "--out", "runs/nobody", cwd=folder)
    said = done(process, code=2)
    assert f"nobody answers at the coordinator's address 127.0.0.1:{port} after 1 s" in said


@pytest.mark.slow
def test_four_devices_take_the_steps_of_one(folder):
    settings = (*TRAIN, "--steps", 50)
    done(start(*settings, "--out", "runs/one", cwd=folder))
    done(start(*settings, "--devices", 4, "--out", "runs/four", cwd=folder, devices=4))
    done(start(*settings, "--devices", "all", "--in-memory", "no", "--out", "runs/disk", cwd=folder, devices=4))
    one = losses(folder / "runs/one")
    assert len(one) == 5
    for name in ("four", "disk"):
        np.testing.assert_allclose(losses(folder / "runs" / name), one, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", ["yes", "no"])
def test_two_processes_take_the_steps_of_one(folder, in_memory):
    settings, port = (*TRAIN, "--steps", 50, "--in-memory", in_memory), free_port()
    done(start(*settings, "--out", f"runs/alone-{in_memory}", cwd=folder))
    both = [start(*settings, *hosts(n, port), "--out", f"runs/two-{in_memory}", cwd=folder) for n in (0, 1)]
    said = [done(process) for process in both]
    assert "run folder" in said[0]
    assert "run folder" not in said[1]
    two, one = (losses(folder / "runs" / f"{name}-{in_memory}") for name in ("two", "alone"))
    assert len(one) == 5
    np.testing.assert_allclose(two, one, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_all_resume(folder, victim):
    name = f"killed-{victim}"
    settings, port = (*TRAIN, "--checkpoint-every", 50, "--out", f"runs/{name}"), free_port()
    both = [start(*settings, "--steps", 100_000, *hosts(n, port), cwd=folder) for n in (0, 1)]
    run = folder / "runs" / name
    until = time.monotonic() + 300
    while not (run / "metrics.jsonl").exists() or len(losses(run)) < 12:
        assert both[0].poll() is None, both[0].communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
    both[victim].send_signal(signal.SIGKILL)
    said = done(both[1 - victim], code=2)
    both[victim].communicate()
    assert "another process of this training has ended" in said
    assert "--resume" in said
    reached = max(int(number) for number in re.findall(r"\d+", " ".join(os.listdir(run / "checkpoints"))))
    steps, port = reached + 20, free_port()
    both = [start("train", "--resume", f"runs/{name}", "--steps", steps, *hosts(n, port), cwd=folder) for n in (0, 1)]
    for process in both:
        done(process)
    assert json.loads((run / "config.json").read_text())["outcome"]["step"] == steps


@pytest.mark.slow
def test_a_full_disk_of_the_first_process_is_a_sentence_of_each(folder, monkeypatch):
    import resource

    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "0")  # which has files of its own that are too large
    port, settings = free_port(), (*TRAIN, "--steps", 100_000, "--checkpoint-every", 50, "--out", "runs/full")
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))}
    first = start(*settings, *hosts(0, port), cwd=folder, **full)
    second = start(*settings, *hosts(1, port), cwd=folder)
    assert "could not be written" in done(first, code=2)
    assert "another process of this training has ended" in done(second, code=2, timeout=60)


@pytest.mark.slow
def test_processes_with_different_data_are_refused(folder):
    other = folder / "elsewhere"
    other.mkdir()
    save(random_episodes([29] * 12), other / "set.episodes")
    port = free_port()
    places = (folder, other)
    both = [start(*TRAIN, "--steps", 4, *hosts(n, port), "--out", "runs/differ", cwd=places[n]) for n in (0, 1)]
    for process in both:
        assert "process 1 has the training episodes" in done(process, code=2)
    assert not (folder / "runs/differ").exists()
