"""A run's folder belongs to one process at a time: two that write metrics and checkpoints would spoil both runs."""

from pathlib import Path
from types import TracebackType

from koopax._atomic import check_place, sweep
from koopax._errors import KoopaxError

LOCK = ".lock"


class Claim:
    """Holds a folder, which is made where it is missing, until it is released or the process ends, however it ends."""

    def __init__(self, folder: Path):
        from filelock import FileLock, Timeout

        check_place(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
            self._lock.acquire()
        except Timeout:
            raise KoopaxError(
                f"the run {str(folder)!r} is being written by another process: wait for its end, or choose another "
                "folder."
            ) from None
        except OSError as error:
            raise KoopaxError(
                f"the run folder {str(folder)!r} can't be written ({error.strerror or error}): choose another one."
            ) from error
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            sweep(place)

    def release(self) -> None:
        """Let others have it."""
        self._lock.release()

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.release()
