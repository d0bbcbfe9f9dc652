"""Writing that either finishes or leaves nothing behind."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from koopax._errors import KoopaxError


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` when the block ends well."""
    with _temporary(path, overwrite) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path` to fill; it takes the place of `path` when the block ends well."""
    with _temporary(path, overwrite) as temporary:
        temporary.mkdir()
        yield temporary
        if not path.exists():
            temporary.rename(path)
            return
        old = _beside(path)
        path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _temporary(path: Path, overwrite: bool) -> Iterator[Path]:
    if path.exists() and not overwrite:
        raise KoopaxError(f"{str(path)!r} already exists: choose another destination, or allow overwriting it.")
    temporary = _beside(path)
    created = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except OSError as error:
        raise KoopaxError(
            f"{str(path)!r} could not be written ({error.strerror or error}): "
            "free some space or choose another destination."
        ) from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):
                temporary.unlink()
        if not path.exists():
            for parent in created:
                # Not empty any more if another process writes there.
                with suppress(OSError):
                    parent.rmdir()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
