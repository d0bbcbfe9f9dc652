"""How much memory a training step takes: measured in a process that runs one arm and nothing else.

The process compiles the step, reads its own resident memory, takes one step and reads its peak. The growth is what the
step needs; the peak includes Python, JAX, the compiler and the dataset.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from koopax.bench.arms import CompiledStep, load_data
from koopax.bench.settings import SpeedSettings
from koopax.data.episodes import Episodes

# Of the memory that is free: the last tenth belongs to the rest of the machine.
USABLE_SHARE = 0.9
# glibc keeps freed blocks below a threshold that it raises by itself; fixed, every large one is returned.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "1048576"}


def measure_memory(arm: str, settings: SpeedSettings, *, compilations: str) -> dict[int, dict[str, Any]]:
    """By horizon: `growth`, `process_peak` and `planned` in bytes, or a `failure` in words.

    The programs that it compiles are kept in the folder `compilations`, where this process finds them again.
    """
    request = json.dumps({"arm": arm, "settings": asdict(settings)})
    done = subprocess.run(
        [sys.executable, "-c", "from koopax.bench.memory import answer; answer()", request],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT, "JAX_COMPILATION_CACHE_DIR": compilations},
    )
    found = {line["horizon"]: line for line in map(json.loads, done.stdout.splitlines())}
    if done.returncode == 0:
        return found
    if done.returncode > 0:
        raise RuntimeError(f"measuring the memory of {arm} failed:\n{done.stderr}")
    killed = f"the process was ended by signal {-done.returncode}, probably for want of memory"
    missing = [horizon for horizon in settings.horizons if horizon not in found]
    return found | {horizon: {"horizon": horizon, "failure": killed} for horizon in missing}


def lacks_memory(planned: int) -> str | None:
    """Why a step that needs so many bytes should not be tried here, or None where it fits."""
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    if free is None or planned <= USABLE_SHARE * free:
        return None
    return f"it needs {planned / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"


def _one_horizon(arm: str, horizon: int, settings: SpeedSettings, data: Episodes) -> dict[str, Any]:
    step = CompiledStep(arm, horizon, settings, data)
    found: dict[str, Any] = {"horizon": horizon, "planned": step.planned_bytes()}
    failure = lacks_memory(found["planned"])
    if failure is not None:
        return {**found, "failure": failure}
    state = step.blank_state()
    before = _own("VmRSS")
    _forget_peak()
    step.run(state, 1)
    peak = _own("VmHWM")
    growth = None if before is None or peak is None else peak - before
    return {**found, "growth": growth, "process_peak": peak}


def _own(field: str) -> int | None:
    return _kilobytes(Path("/proc/self/status"), field)


def _kilobytes(path: Path, field: str) -> int | None:
    """A field of one of Linux's files, in bytes; None on other systems."""
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    return None


def _forget_peak() -> None:
    """The compiler's peak is not the step's."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _volunteer() -> None:
    """If memory runs out after all, this process is the one to end."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def answer() -> None:
    """What the child process does: one line of JSON for each horizon."""
    request = json.loads(sys.argv[1])
    given: dict[str, Any] = request["settings"]
    given.update(models=tuple(given["models"]), horizons=tuple(given["horizons"]))
    settings = SpeedSettings(**given)
    _volunteer()
    data = load_data(settings)
    for horizon in sorted(settings.horizons):
        print(json.dumps(_one_horizon(request["arm"], horizon, settings, data)), flush=True)
