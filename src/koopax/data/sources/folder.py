"""The native format: a folder of `.npy` files and a JSON header.

It can be memory-mapped, appended to while a set is made, and holds no time stamps, so the same episodes give the same
bytes. The rows are those of `Episodes`, padding included.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax._untrusted import read_json, reading
from koopax.data.episodes import Episodes
from koopax.data.images import frame_text
from koopax.data.metadata import Metadata, merge
from koopax.data.statistics import iterate_chunks

HEADER = "header.json"
_FORMAT = "koopax-episodes"
_VERSION = 2
"""1 for vectors, as ever; 2 for images."""
_ROW_ARRAYS = ("observations", "actions", "rewards", "durations")
_EPISODE_ARRAYS = ("starts", "terminated", "sources")
_TYPES = {"observations": (np.float32, np.uint8), "starts": (np.int64,), "sources": (np.int64,), "terminated": (bool,)}
_DIGEST_BYTES = 1 << 22


class FolderWriter:
    """Appends episodes to an empty folder, piece by piece; the folder can be read after `finish`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, NpyFile] = {}
        self._lengths: list[np.ndarray] = []
        self._terminated: list[np.ndarray] = []
        self._sources: list[np.ndarray] = []
        self._metadata: Metadata | None = None
        self._frame: tuple[int, int, int] | None = None
        self._irregular = False

    def append(self, episodes: Episodes) -> None:
        """Write the episodes after those already written."""
        if self._metadata is None:
            self._metadata = episodes.metadata
            self._frame = episodes.image_shape
            frame_or_vector = self._frame or (episodes.state_size,)
            columns = {"observations": frame_or_vector, "actions": (episodes.action_size,)}
            for name in _ROW_ARRAYS:
                dtype = np.dtype(np.uint8 if name == "observations" and self._frame else np.float32)
                self._files[name] = NpyFile(self.folder / f"{name}.npy", dtype, columns.get(name, ()))
        if episodes.image_shape != self._frame:
            raise KoopaxError(
                f"a set of {frame_text(episodes.image_shape or ())} frames follows one of "
                f"{frame_text(self._frame or ())}: give all states the same form."
            )
        self._metadata, numbers = merge([self._metadata, episodes.metadata])
        self._lengths.append(episodes.lengths)
        self._terminated.append(episodes.terminated)
        self._sources.append(np.asarray(numbers[1])[episodes.sources])
        self._irregular |= episodes.durations is not None
        for chunk in iterate_chunks(episodes):
            for name, file in self._files.items():
                rows = getattr(chunk, name)
                file.append(np.ones(len(chunk.rewards), np.float32) if rows is None else rows)

    def finish(self) -> None:
        """Complete the arrays and write the header."""
        if self._metadata is None:
            raise KoopaxError("the set is empty: give at least one episode.")
        for file in self._files.values():
            file.close()
        if not self._irregular:
            (self.folder / "durations.npy").unlink()
        starts = np.concatenate([[0], np.cumsum(np.concatenate(self._lengths) + 1)]).astype(np.int64)
        np.save(self.folder / "starts.npy", starts)
        np.save(self.folder / "terminated.npy", np.concatenate(self._terminated).astype(bool))
        np.save(self.folder / "sources.npy", np.concatenate(self._sources).astype(np.int64))
        version = 1 if self._frame is None else _VERSION
        digests = {name: file.digest for name, file in self._files.items() if name != "durations" or self._irregular}
        header = {
            "format": _FORMAT,
            "version": version,
            "metadata": self._metadata.to_json(),
            "digests": digests | {"starts": _digest(starts)},
        }
        (self.folder / HEADER).write_text(json.dumps(header, indent=1, sort_keys=True) + "\n")

    def close(self) -> None:
        """Close the files without finishing."""
        for file in self._files.values():
            file.file.close()


class NpyFile:
    """A `.npy` file that grows by rows with plain writes: a full disk then raises instead of killing the process."""

    def __init__(self, path: Path, dtype: np.dtype, columns: tuple[int, ...]) -> None:
        self.file = open(path, "wb")  # noqa: SIM115 - closed by its owner
        self.dtype = dtype
        self.columns = columns
        self.rows = 0
        self._written = hashlib.sha256()
        self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Write the rows at the end."""
        content = np.ascontiguousarray(rows, self.dtype).data
        self.file.write(content)
        self._written.update(content)
        self.rows += len(rows)

    @property
    def digest(self) -> str:
        """SHA-256 of all rows."""
        return self._written.hexdigest()

    def close(self) -> None:
        """Write the final shape and close."""
        # NumPy pads its header so that the number of rows can grow in place.
        self.file.seek(0)
        self._write_header()
        self.file.close()

    def _write_header(self) -> None:
        np.lib.format.write_array_header_1_0(
            self.file,
            {
                "descr": np.lib.format.dtype_to_descr(self.dtype),
                "fortran_order": False,
                "shape": (self.rows, *self.columns),
            },
        )


def is_folder(path: Path) -> bool:
    """Whether the path is a folder of this format."""
    return (path / HEADER).is_file()


def is_intact(path: Path) -> bool:
    """Whether all of a set's files are there, as long as they have to be, and hold what was written."""
    try:
        for episodes in read(path, memory_map=True):
            episodes.validate(finite=False)
    except KoopaxError:
        return False
    return True


def read(path: Path, *, memory_map: bool, verify: bool = True) -> Iterator[Episodes]:
    """The whole set as one piece; `verify` compares its rows with the digests that were written with them."""
    with reading(
        path,
        "a complete folder of episodes",
        "make it again, by `koopax data make --force` if it is one of koopax's own",
    ):
        header = read_json(path / HEADER)
        if header.get("format") != _FORMAT or header.get("version", 0) > _VERSION:
            raise ValueError(f"format {header.get('format')} version {header.get('version')}")
        names = [n for n in (*_ROW_ARRAYS, *_EPISODE_ARRAYS) if n != "durations" or (path / "durations.npy").exists()]
        arrays: dict[str, Any] = {}
        for name in names:
            # A map of a file that is shorter than it says is refused before any memory is taken.
            array = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            if array.dtype not in _TYPES.get(name, (np.float32,)):
                raise ValueError(f"{name} are of the type {array.dtype}")
            arrays[name] = array if memory_map and name in _ROW_ARRAYS else np.array(array)
            digest = header.get("digests", {}).get(name)
            if verify and digest is not None and _digest(arrays[name]) != digest:
                raise ValueError(f"its {name} differ from their digest")
        metadata = Metadata.from_json(header["metadata"])
    yield Episodes(**arrays, metadata=metadata)


def _digest(rows: np.ndarray) -> str:
    found = hashlib.sha256()
    step = max(1, _DIGEST_BYTES // max(1, rows[:1].nbytes))
    for first in range(0, len(rows), step):
        found.update(np.ascontiguousarray(rows[first : first + step]).data)
    return found.hexdigest()


def write(episodes: Episodes, folder: Path) -> None:
    """Write into an existing empty folder."""
    writer = FolderWriter(folder)
    try:
        writer.append(episodes)
        writer.finish()
    finally:
        writer.close()
