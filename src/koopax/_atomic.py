"""Writing that either finishes or leaves what was there before, whether the process is killed or the disk is full."""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from koopax._errors import KoopaxError

_TEMPORARY = re.compile(r"\..*\.(?P<host>[0-9a-f]{6})-(?P<process>\d+)-[0-9a-f]{8}\.tmp")
_HOST = hashlib.blake2b(platform.node().encode(), digest_size=3).hexdigest()


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` when the block ends well."""
    with _temporary(path, overwrite) as temporary:
        yield temporary
        _to_disk(temporary)
        os.replace(temporary, path)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path` to fill; it takes the place of `path` when the block ends well."""
    with _temporary(path, overwrite) as temporary:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _to_disk(file)
        if not path.exists():
            temporary.rename(path)
        elif not _exchange(temporary, path):
            old = beside(path)
            path.rename(old)
            temporary.rename(path)
            _remove(old)


def check_place(path: Path) -> None:
    """Raise unless something can be written at `path`, so that a bad place is known before there is work to lose."""
    place = Path(path).absolute()
    above = next(each for each in (place, *place.parents) if os.path.lexists(each) and (each != place or each.is_dir()))
    try:
        # Rights, read-only disks and files in the way are told by the attempt alone.
        probe = beside(above / "probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        where = "" if above == place else f" in {str(above)!r}"
        raise KoopaxError(
            f"{str(path)!r} can't be written{where} ({error.strerror}): choose another destination."
        ) from error


def beside(path: Path) -> Path:
    """A new temporary name beside `path` that tells which process it belongs to."""
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def sweep(folder: Path, name: str = "*") -> None:
    """Remove what processes that were killed while writing `name` in `folder` have left behind."""
    pattern = f".{name if name == '*' else _literally(name)}.*.tmp"
    for path in folder.glob(pattern):
        if (found := _TEMPORARY.fullmatch(path.name)) and found["host"] == _HOST and not _alive(int(found["process"])):
            _remove(path)


@contextmanager
def _temporary(path: Path, overwrite: bool) -> Iterator[Path]:
    if path.exists() and not overwrite:
        raise KoopaxError(f"{str(path)!r} already exists: choose another destination, or allow overwriting it.")
    temporary = beside(path)
    created = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        yield temporary
    except OSError as error:
        raise KoopaxError(
            f"{str(path)!r} could not be written ({error.strerror or error}): "
            "free some space or choose another destination."
        ) from error
    finally:
        _remove(temporary)
        if not path.exists():
            for parent in created:
                # Not empty any more if another process writes there.
                with suppress(OSError):
                    parent.rmdir()


def _to_disk(path: Path) -> None:
    """Wait until a file's content is on the disk: a name must not get there before it."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(one: Path, two: Path) -> bool:
    """Let two paths change places in one instant; False where the system can't."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # not Linux
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename(here, os.fsencode(one.absolute()), here, os.fsencode(two.absolute()), exchange) == 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # somebody else's
    return True


def _literally(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
