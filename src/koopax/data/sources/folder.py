"""The native format: a folder of `.npy` files and a JSON header.

It can be memory-mapped, appended to while a set is made, and holds no time stamps, so the same episodes give the same
bytes. The rows are those of `Episodes`, padding included.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
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
        header = {"format": _FORMAT, "version": version, "metadata": self._metadata.to_json()}
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
        self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Write the rows at the end."""
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

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


def read(path: Path, *, memory_map: bool) -> Iterator[Episodes]:
    """The whole set as one piece."""
    try:
        header = json.loads((path / HEADER).read_text())
        if header.get("format") != _FORMAT or header.get("version", 0) > _VERSION:
            raise ValueError(f"format {header.get('format')} version {header.get('version')}")
        names = [n for n in (*_ROW_ARRAYS, *_EPISODE_ARRAYS) if n != "durations" or (path / "durations.npy").exists()]
        arrays: dict[str, Any] = {}
        for name in names:
            mode = "r" if memory_map and name in _ROW_ARRAYS else None
            arrays[name] = np.load(path / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
        metadata = Metadata.from_json(header["metadata"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise KoopaxError(f"{str(path)!r} is not a complete folder of episodes ({error}): make it again.") from error
    yield Episodes(**arrays, metadata=metadata)


def write(episodes: Episodes, folder: Path) -> None:
    """Write into an existing empty folder."""
    writer = FolderWriter(folder)
    try:
        writer.append(episodes)
        writer.finish()
    finally:
        writer.close()
