"""Windows per second of one process and of two that share a batch twice as large, each on a core of its own."""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax._provenance import usable_cores
from koopax.bench.clock import Watch
from koopax.bench.disk import noise
from koopax.bench.document import document
from koopax.data.loading import save

MODEL = "koopman"


def measure(
    *,
    batch_size: int = 64,
    horizon: int = 100,
    steps: int = 60,
    rounds: int = 3,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench hosts --json` prints.

    Args:
        batch_size: windows of each process in a batch.
        horizon: steps of a window.
        steps: gradient steps of a training.
        rounds: trainings of each kind, in turns; the median counts.
        watch: told how many trainings are done, and of how many.
    """
    if min(batch_size, horizon, steps, rounds) < 1:
        raise KoopaxError(
            f"{rounds} rounds of {steps} steps on {batch_size} windows of {horizon}: all must be positive."
        )
    if usable_cores() < 2 or not hasattr(os, "sched_setaffinity"):
        raise KoopaxError(f"this process may use {usable_cores()} core: two processes need two.")
    settings = {"batch_size": batch_size, "horizon": horizon, "steps": steps, "rounds": rounds, "model": MODEL}
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        save(noise(100), place / "set.episodes")
        for number in range(rounds):
            for processes in rates:
                seconds = _train(place, f"{processes}-{number}", processes, settings)
                rates[processes].append(processes * batch_size * steps / seconds)
                watch(sum(map(len, rates.values())), 2 * rounds)
    median = {str(processes): statistics.median(found) for processes, found in rates.items()}
    found = {
        "windows_per_second": median,
        "by_round": {str(processes): found for processes, found in rates.items()},
        "weak_scaling": median["2"] / median["1"] / 2,
        "load_average": os.getloadavg()[0],
    }
    return document("hosts", settings, found)


def _train(place: Path, name: str, processes: int, settings: dict[str, Any]) -> float:
    """Seconds of gradient steps of a training in so many processes."""
    out = place / name
    command = [sys.executable, "-c", "from koopax.cli import main; main()", "train", str(place / "set.episodes")]
    command += ["--model", MODEL, "--out", str(out), "--validate-every", "1000000", "--validation-windows", "1"]
    command += ["--horizon", str(settings["horizon"]), "--steps", str(settings["steps"])]
    command += ["--batch-size", str(processes * settings["batch_size"]), "--reencode-every", "never"]
    address, cores = f"127.0.0.1:{_free_port()}", sorted(os.sched_getaffinity(0))
    started = []
    for number in range(processes):
        who = ["--coordinator", address, "--process-id", str(number), "--processes", str(processes)]
        more = ["--distributed", *who] if processes > 1 else []
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        core = cores[number]
        started.append(
            subprocess.Popen([*command, *more], preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}), **streams)  # type: ignore[call-overload]
        )
    for process in started:
        _, said = process.communicate()
        if process.returncode:
            raise KoopaxError(f"a training in {processes} processes failed: {said.strip()[-500:]}")
    return json.loads((out / "config.json").read_text())["outcome"]["seconds"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
