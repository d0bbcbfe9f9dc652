"""`load` and `save`: which format a name means, and the way through it."""

import inspect
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from koopax._atomic import beside, check_place, new_file, new_folder, sweep
from koopax._cache import cache_folder
from koopax._errors import KoopaxError, unknown_name
from koopax._untrusted import memory, reading
from koopax.data.episodes import Episodes


@dataclass(frozen=True)
class Format:
    """A way to store episodes; its module in `koopax.data.sources` has `read` and, if `writable`, `write`."""

    module: str
    """Module name, imported when used."""
    suffixes: tuple[str, ...]
    """File suffixes that mean this format."""
    description: str
    """One line for people."""
    writable: bool = True
    """Whether episodes can be written in it."""


FORMATS = {
    "minari": Format("minari", (), "Minari dataset: an id like mine/cheetah/test-v0, or a folder"),
    "d4rl": Format("d4rl", (".hdf5", ".h5"), "D4RL v2 HDF5 file", writable=False),
    "npz": Format("npz", (".npz",), "NumPy archive"),
    "table": Format("table", (".csv", ".parquet"), "CSV or Parquet table with an episode column"),
    "folder": Format("folder", (".episodes",), "memory-mappable folder of .npy files"),
    "frames": Format("frames", (), "folder of videos or pictures with a table of actions", writable=False),
}


def _module(name: str) -> Any:
    return import_module(f"koopax.data.sources.{FORMATS[name].module}")


def _format_of_suffix(path: Path) -> str | None:
    return next((name for name, f in FORMATS.items() if path.suffix.lower() in f.suffixes), None)


def load(
    source: "str | os.PathLike[str] | Episodes", *, check: bool = True, memory_map: bool | None = None, **options: Any
) -> Episodes:
    """Episodes from a Minari id or folder, a D4RL `.hdf5`, an `.npz`, a `.csv` or `.parquet` table, or our own folders.

    A folder of videos or pictures with a table of actions is read as well, see `koopax.data.sources.frames`.

    Args:
        source: a path, or a Minari id (`mujoco/halfcheetah/expert-v0`; downloaded by Minari if it is not there, for
            which `pip install 'koopax[mujoco]'`).
        check: raise on NaN and infinite values.
        memory_map: keep the rows on disk; by default if the source is larger than a quarter of the memory.
        options: of the format: columns of a table (see `koopax.data.sources.table.read`).
    """
    if isinstance(source, Episodes):
        return source
    name = os.fspath(source)
    path, kind = _recognise(name)
    module = _module(kind)
    for option in options:
        if option not in (known := list(inspect.signature(module.read).parameters)[1:]):
            raise unknown_name(f"option of the {kind} format", option, known)
    with reading(name, f"readable in the format {kind!r}", "write or download it again"):
        if not memory_map:
            # Of videos and pictures the files are much smaller than what is in them.
            size = module.size_in_memory(path, **options) if kind == "frames" else _size(path)
            if memory_map is False and size > memory():
                raise KoopaxError(
                    f"{name!r} takes {size / 1e9:.1f} GB, and this process may use {memory() / 1e9:.1f} GB of memory: "
                    "leave it on disk (memory_map=True, or --in-memory no)."
                )
            memory_map = size > memory() / 4 if memory_map is None else False
        if kind == "folder":
            episodes = _join(module.read(path, memory_map=memory_map))
        else:
            pieces = module.read(path, **options) if path.exists() else module.read_id(name)
            episodes = _spool(pieces) if memory_map else _join(pieces)
        episodes.validate(finite=check)
    return episodes


def _recognise(name: str) -> tuple[Path, str]:
    from koopax.data.sources import folder, frames, minari

    path = Path(name).expanduser()
    if path.is_dir():
        if folder.is_folder(path):
            return path, "folder"
        if minari.data_folder(path) is not None:
            return path, "minari"
        if frames.is_folder(path):
            return path, "frames"
        raise KoopaxError(
            f"{name!r} is a folder without episodes: give a Minari dataset, a folder that koopax wrote, or one with a "
            "table (.csv or .parquet) and the videos or pictures of its episodes."
        )
    kind = _format_of_suffix(path)
    if kind is not None and path.is_file():
        return path, kind
    if path.is_file():
        raise unknown_name("file type", path.suffix or path.name, [s for f in FORMATS.values() for s in f.suffixes])
    if kind is not None or name.startswith((".", "/", "~")):
        raise KoopaxError(f"there is no file or folder {name!r}: check the path.")
    if name.startswith("koopax/"):
        raise KoopaxError(f"{name!r} is collected, not read: use koopax.load, or `koopax data make {name}`.")
    if minari.is_id(name):
        return path, "minari"
    raise KoopaxError(
        f"{name!r} is neither a file nor a dataset's name: give a path, a Minari id like mujoco/halfcheetah/expert-v0, "
        "or a name from `koopax data list`."
    )


def _join(pieces: Iterator[Episodes]) -> Episodes:
    gathered = list(pieces)
    return gathered[0] if len(gathered) == 1 else Episodes.concatenate(gathered)


def _spool(pieces: Iterator[Episodes]) -> Episodes:
    """The pieces on disk, mapped; the files are already removed by name and vanish with the last array."""
    from koopax.data.sources import folder

    temporary = beside(cache_folder() / "mapped")
    try:
        temporary.mkdir(parents=True)
        sweep(temporary.parent, "mapped")
        writer = folder.FolderWriter(temporary)
        try:
            for piece in pieces:
                writer.append(piece)
            writer.finish()
        finally:
            writer.close()
        return _join(folder.read(temporary, memory_map=True, verify=False))
    except OSError as error:
        raise KoopaxError(
            f"no room to map the episodes in {str(temporary.parent)!r} ({error}): set KOOPAX_DATA to a larger disk."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0


def save(episodes: Episodes, destination: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write episodes and return where; either the whole set is there afterwards, or nothing is.

    The destination's suffix chooses the format: `.npz`, `.parquet`, `.csv`, `.episodes` (a memory-mappable folder).
    Without a suffix it is a Minari dataset: an id like `mine/cheetah/test-v0` goes to Minari's own folder, a path (one
    that begins with `.`, `/` or `~`, or has no version) becomes a Minari folder there.
    """
    path, kind, identifier = resolve_destination(destination, overwrite=overwrite)
    if kind in ("table", "npz"):
        with new_file(path, overwrite=overwrite) as temporary:
            options = {"suffix": path.suffix.lower()} if kind == "table" else {}
            _module(kind).write(episodes, temporary, **options)
    else:
        with new_folder(path, overwrite=overwrite) as temporary:
            options = {"identifier": identifier} if kind == "minari" else {}
            _module(kind).write(episodes, temporary, **options)
    return path


def resolve_destination(destination: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, str, str]:
    """Path, format and Minari id that a destination means; raises where `save` would, before there is work to lose."""
    from koopax.data.sources import minari

    name = os.fspath(destination)
    path = Path(name).expanduser()
    kind = _format_of_suffix(path)
    identifier = ""
    if kind is None and path.suffix == "" and name:
        kind = "minari"
        identifier = name if minari.is_id(name) else path.name if minari.is_id(path.name) else f"{path.name}-v0"
        path = minari.root() / name if minari.is_id(name) else path
    if kind is None or not FORMATS[kind].writable:
        writable = [suffix for f in FORMATS.values() if f.writable for suffix in f.suffixes]
        raise KoopaxError(
            f"{name!r} has no format that can be written: end it in {', '.join(writable)}, or give a Minari id."
        )
    if path.exists() and not overwrite:
        raise KoopaxError(f"{str(path)!r} already exists: choose another destination, or allow overwriting it.")
    check_place(path)
    return path, kind, identifier
