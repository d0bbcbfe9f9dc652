"""Training steps on a dataset that does not fit into memory, beside the same steps on one that does.

The set is written for the measurement and removed after it. Its pages are dropped from the system's cache before the
first step, and the process that trains may take no more than a given amount of memory (`ulimit -d`); the map of the
files is not its own memory, and the system may take its pages away at any time. Both cases take turns in one process.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax._untrusted import read_json
from koopax.bench.document import document
from koopax.data.episodes import Episodes
from koopax.data.feeding import can_feed
from koopax.data.sources.folder import HEADER, NpyFile, read, write
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import preset
from koopax.training.config import TrainConfig
from koopax.training.loop import fresh_state
from koopax.training.programs import Programs
from koopax.training.settings import resolved

STATE, ACTION, EPISODE = 17, 6, 1000
MODEL = "koopman"
PIECE = 1000
"""Episodes that are written together."""


def measure(
    *,
    gigabytes: float = 20.0,
    memory_gibibytes: float = 2.0,
    batch_size: int = 64,
    horizon: int = 100,
    steps: int = 20,
    rounds: int = 5,
    folder: Path | None = None,
) -> dict[str, Any]:
    """The document that `koopax bench disk --json` prints.

    Args:
        gigabytes: size of the set on disk.
        memory_gibibytes: what the training process may take.
        batch_size: windows in a batch.
        horizon: steps of a window.
        steps: gradient steps of a visit.
        rounds: visits of each case, in turns; the median counts.
        folder: where the set is written; a temporary folder by default.
    """
    if min(gigabytes, memory_gibibytes) <= 0 or min(batch_size, horizon, steps, rounds) < 1:
        raise KoopaxError(
            f"{gigabytes} GB in {memory_gibibytes} GiB with {rounds} rounds of {steps} steps: all must be positive."
        )
    room = shutil.disk_usage(folder or tempfile.gettempdir()).free / 1e9
    if room < gigabytes * 1.1:
        raise KoopaxError(
            f"a set of {gigabytes} GB does not fit on the disk, which has {room:.0f} GB: use another --folder."
        )
    settings = {
        "gigabytes": gigabytes,
        "memory_gibibytes": memory_gibibytes,
        "batch_size": batch_size,
        "horizon": horizon,
        "steps": steps,
        "rounds": rounds,
        "model": MODEL,
        "grain": can_feed(),
    }
    place = Path(tempfile.mkdtemp(prefix="koopax-disk-", dir=folder))
    try:
        began = time.perf_counter()
        written = write_set(place / "set.episodes", gigabytes)
        settings["bytes"], seconds = written, time.perf_counter() - began
        found = _in_limits(place / "set.episodes", settings)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return document("disk", settings, {"write_seconds": seconds, "load_average": os.getloadavg()[0], **found})


def write_set(path: Path, gigabytes: float) -> int:
    """Write noise of HalfCheetah's shape until there is so much of it; the number of bytes. Nothing stays cached.

    It is the same thousand episodes again and again, and without digests, so that writing takes the disk's time alone.
    """
    piece = noise(PIECE)
    size = sum(array.nbytes for array in (piece.observations, piece.actions, piece.rewards))
    count = max(1, round(gigabytes * 1e9 / size))
    write(piece, new_empty(path))
    header = read_json(path / HEADER)
    (path / HEADER).write_text(json.dumps({name: value for name, value in header.items() if name != "digests"}))
    for name in ("observations", "actions", "rewards"):
        rows = np.asarray(getattr(piece, name))
        file = NpyFile(path / f"{name}.npy", rows.dtype, rows.shape[1:])
        for _ in range(count):
            file.file.write(rows.data)
            file.rows += len(rows)
        file.close()
    starts = np.arange(count * PIECE + 1, dtype=np.int64) * (EPISODE + 1)
    for name, array in {"starts": starts, "terminated": starts[1:] < 0, "sources": 0 * starts[1:]}.items():
        np.save(path / f"{name}.npy", array)
    for each in path.iterdir():
        with open(each, "rb") as opened:
            os.fsync(opened.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sum(each.stat().st_size for each in path.iterdir())


def new_empty(path: Path) -> Path:
    """A folder that was not there."""
    path.mkdir(parents=True)
    return path


def noise(count: int) -> Episodes:
    """Episodes of HalfCheetah's shape."""
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        list(rng.normal(size=(count, EPISODE + 1, STATE)).astype(np.float32)),
        list(rng.uniform(-1, 1, size=(count, EPISODE, ACTION)).astype(np.float32)),
        list(rng.normal(size=(count, EPISODE)).astype(np.float32)),
    )


def _in_limits(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own measures that may take so much memory."""
    limit = int(settings["memory_gibibytes"] * 2**30)
    code = f"from koopax.bench.disk import inside; inside({str(path)!r}, {json.dumps(settings)!r}, {limit})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise KoopaxError(f"training within {settings['memory_gibibytes']} GiB failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def inside(path: str, settings: str, limit: int) -> None:
    """Measure with limited memory, and print what was found."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(json.dumps(_measure(Path(path), json.loads(settings))))


def _measure(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    (on_disk,) = read(path, memory_map=True, verify=False)
    small = noise(200)
    cases = {"memory": _Case(small, small, settings), "disk": _Case(on_disk, small, settings)}
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case.run(settings["steps"])
    before = _read_bytes()
    for _ in range(settings["rounds"]):
        for name, case in cases.items():
            began = time.perf_counter()
            case.run(settings["steps"])
            taken[name].append((time.perf_counter() - began) / settings["steps"])
    ratios = [memory / disk for memory, disk in zip(taken["memory"], taken["disk"], strict=True)]
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "milliseconds": {name: 1e3 * statistics.median(seconds) for name, seconds in taken.items()},
        "speed_of_memory": statistics.median(ratios),
        "speed_of_memory_by_round": ratios,
        "read_from_disk_bytes": _read_bytes() - before,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "own_memory_bytes": int(status.get("RssAnon", "0 kB").split()[0]) * 1024,
        "episodes": on_disk.num_episodes,
        "first_losses": {name: case.loss for name, case in cases.items()},
    }


class _Case:
    """Gradient steps on some data; the model is fitted to the small set in both cases."""

    def __init__(self, data: Episodes, small: Episodes, settings: dict[str, Any]):
        config = resolved(TrainConfig(horizon=settings["horizon"], batch_size=settings["batch_size"]), MODEL)
        model = DynamicsModel.create(data=small, key=jax.random.key(0), **preset(MODEL))
        self._key, self._state = jax.random.key(0), fresh_state(model, config)
        self._programs = Programs(data, None, config)
        self._programs.compile(self._state, self._key)
        self.loss = float("nan")

    def run(self, steps: int) -> None:
        """So many steps."""
        self._state = self._programs.advance(self._state, [0.5] * steps, self._key)
        if not np.isfinite(self.loss):
            self.loss = float(self._state.sums["loss"]) / steps


def _read_bytes() -> int:
    """What this process has had read from disks."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0
