"""Collection in parallel processes.

Each worker is a plain `python -m koopax.collection.workers` with a pipe, not a `multiprocessing` child: so a user's
script needs no `if __name__ == "__main__"` guard, and the matrix library of a worker can be held to one thread before
it is loaded.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from koopax._errors import KoopaxError
from koopax.collection.rollouts import Collector, Stage

_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
_STOP = "stop"


class Workers:
    """Processes that run groups of episodes."""

    def __init__(
        self, count: int, environment: str, stages: list[Stage], seed: int, image_size: int | None = None
    ) -> None:
        self._draws = image_size is not None
        try:
            setup = pickle.dumps((environment, stages, seed, image_size))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise KoopaxError(
                f"the policy cannot go to worker processes ({error}): give it as module:function, or set workers=0."
            ) from error
        self._processes: dict[Connection, subprocess.Popen] = {}
        self.idle: list[Connection] = []
        for _ in range(count):
            self._start(setup)

    def _start(self, setup: bytes) -> None:
        ours, theirs = Pipe()
        code = f"from koopax.collection.workers import main; main({theirs.fileno()})"
        self._processes[ours] = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=_environment_variables(self._draws),
        )
        theirs.close()
        ours.send_bytes(setup)

    def submit(self, stage: int, group: int) -> None:
        """Give a group to an idle worker."""
        self.idle.pop().send((stage, group))

    def messages(self, timeout: float) -> Iterator[tuple[str, Any]]:
        """What the workers have sent; waits for the first at most `timeout` seconds."""
        for connection in wait(list(self._processes), timeout):
            assert isinstance(connection, Connection)
            try:
                kind, content = connection.recv()
            except (EOFError, ConnectionResetError):
                code = self._processes.pop(connection).wait()
                raise KoopaxError(
                    f"a collection worker ended with code {code}: perhaps it ran out of memory; use fewer workers."
                ) from None
            if kind == "error":
                raise KoopaxError(content)
            if kind in ("ready", "episodes"):
                self.idle.append(connection)
            yield kind, content

    def stop(self) -> None:
        """Ask every worker to end its episodes now and send what it has."""
        for connection in self._processes:
            if connection not in self.idle:
                connection.send(_STOP)

    @property
    def busy(self) -> bool:
        """Whether a worker is still at work."""
        return len(self.idle) < len(self._processes)

    def close(self) -> None:
        """End the processes."""
        for connection, process in self._processes.items():
            process.kill()
            process.wait()
            connection.close()


def _environment_variables(draws: bool) -> dict[str, str]:
    """One thread each, the parent's import path, and no window system unless one was chosen or it draws."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {"MUJOCO_GL": "egl" if draws else "disabled"} | os.environ | _ONE_THREAD | {"PYTHONPATH": paths}


def main(descriptor: int) -> None:
    """A worker: receive groups, send episodes, until the other end closes."""
    # Ctrl-C reaches the whole group of processes; only the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        collector = Collector(*pickle.loads(connection.recv_bytes()))
        connection.send(("ready", collector.info))
        while True:
            job = connection.recv()
            if job == _STOP:
                continue
            stage, group = job
            rollouts = collector.run(stage, group, connection.poll, lambda n: connection.send(("steps", n)))
            connection.send(("episodes", (stage, group, rollouts)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except KoopaxError as error:
        connection.send(("error", str(error)))
    except Exception as error:
        traceback.print_exc()
        connection.send(("error", f"collection failed in a worker ({type(error).__name__}: {error})."))


class InProcess:
    """The same interface without processes, for policies that cannot leave this one."""

    def __init__(
        self,
        environment: str,
        stages: list[Stage],
        seed: int,
        stopped: Callable[[], bool],
        image_size: int | None = None,
    ) -> None:
        self._collector = Collector(environment, stages, seed, image_size)
        self._stopped = stopped
        self._queue: list[tuple[str, Any]] = [("ready", self._collector.info)]
        self.idle = [self]
        self.busy = False

    def submit(self, stage: int, group: int) -> None:
        """Run the group now."""

        def report(steps: int) -> None:
            self._queue.append(("steps", steps))

        rollouts = self._collector.run(stage, group, self._stopped, report)
        self._queue.append(("episodes", (stage, group, rollouts)))

    def messages(self, timeout: float) -> Iterator[tuple[str, Any]]:
        """What there is."""
        while self._queue:
            yield self._queue.pop(0)

    def stop(self) -> None:
        """Nothing to do: `stopped` is asked at every step."""

    def close(self) -> None:
        """Nothing to end."""
