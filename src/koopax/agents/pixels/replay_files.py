"""The replay beside a run's checkpoints: rows that are finished are written once, into files that never change.

A checkpoint names the files that it needs and their digests, and holds the newest row of each environment itself,
since what is done at that frame is not known yet. Files that neither of the two kept checkpoints needs are removed.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax._npz import read_npz
from koopax.agents.pixels.replay import FrameReplay

ROOM = 1.1
"""Space that a replay needs, as a multiple of its frames."""


class ReplayFiles:
    """The files of one run's replay."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self._named: list[dict[str, Any]] = []
        self._needed_before: set[str] = set()

    def save(self, replay: FrameReplay) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Write what is new; a header and the arrays that belong into the checkpoint."""
        finished = replay.inserted - 1
        for env, end in enumerate(finished):
            oldest = max(int(replay.inserted[env]) - replay.rows, 0)
            written = max((named["end"] for named in self._named if named["env"] == env), default=0)
            start = max(written, oldest)
            if start < end:
                self._named.append(self._write(replay, env, start, int(end)))
            self._named = [named for named in self._named if named["env"] != env or named["end"] > oldest]
        needed = {named["name"] for named in self._named}
        for path in self.folder.glob("*.npz") if self.folder.is_dir() else ():
            if path.name not in needed | self._needed_before:
                path.unlink(missing_ok=True)
        self._needed_before = needed
        envs, rows = np.arange(len(finished)), finished % replay.rows
        newest = {name: array[envs, rows] for name, array in replay.arrays.items()}
        return {"inserted": replay.inserted.tolist(), "files": list(self._named)}, newest

    def restore(self, replay: FrameReplay, header: dict[str, Any], newest: dict[str, np.ndarray]) -> None:
        """Fill an empty replay with what a checkpoint names; raises where a file is missing or damaged."""
        replay.inserted[:] = header["inserted"]
        for named in header["files"]:
            if not 0 <= named["start"] < named["end"] <= named["start"] + replay.rows:
                raise ValueError(f"{named['name']} has rows {named['start']} to {named['end']}")
            rows = np.arange(named["start"], named["end"])
            kept = rows >= replay.inserted[named["env"]] - replay.rows
            for name, values in self._read(named).items():
                replay.arrays[name][named["env"], rows[kept] % replay.rows] = values[kept]
        envs, last = np.arange(len(replay.inserted)), (replay.inserted - 1) % replay.rows
        for name, values in newest.items():
            replay.arrays[name][envs, last] = values
        self._named = list(header["files"])
        self._needed_before = {named["name"] for named in self._named}

    def _write(self, replay: FrameReplay, env: int, start: int, end: int) -> dict[str, Any]:
        rows = np.arange(start, end) % replay.rows
        path = self.folder / f"{env:03d}-{start:09d}-{end:09d}.npz"
        self.folder.mkdir(parents=True, exist_ok=True)
        with new_file(path, overwrite=True) as temporary, open(temporary, "wb") as file:
            np.savez(file, **{name: array[env, rows] for name, array in replay.arrays.items()})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        return {"name": path.name, "env": env, "start": start, "end": end, "digest": _digest(path)}

    def _read(self, named: dict[str, Any]) -> dict[str, np.ndarray]:
        path = self.folder / Path(named["name"]).name
        if not path.is_file() or _digest(path) != named["digest"]:
            raise KoopaxError(f"the replay file {str(path)!r} is missing or damaged.")
        return read_npz(path)


def check_room(bytes_needed: int, folder: Path) -> None:
    """Raise unless memory and the folder's disk have room for a replay of that size."""
    wanted = ROOM * bytes_needed / 2**30
    existing = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists())
    places = {"memory": _available_memory(), f"the disk of {str(folder)!r}": shutil.disk_usage(existing).free}
    for place, free in places.items():
        if free is not None and wanted * 2**30 > free:
            raise KoopaxError(
                f"a replay of {wanted:.1f} GiB does not fit into {place}, of which {free / 2**30:.1f} GiB are free: "
                "lower replay_steps or replay_gib, or take smaller images."
            )


def _available_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
