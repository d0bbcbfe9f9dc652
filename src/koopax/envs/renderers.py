"""Pixel environments in processes of their own, stepped together, and resumable.

Each process is a plain `python -c`, not a `multiprocessing` child: a user's script needs no `__main__` guard, and
MuJoCo's way of drawing is chosen before it is loaded. A process holds one environment or several.
"""

import logging
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax._provenance import usable_cores
from koopax.envs.camera import PACKAGES
from koopax.envs.pixels import Outcome, PixelTask

_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}


class Worker(NamedTuple):
    """A process and the way to it."""

    process: subprocess.Popen
    connection: Connection


class Renderers:
    """`count` environments of one name, spread over processes: as many as there are cores, if none are given."""

    def __init__(
        self,
        name: str,
        count: int,
        *,
        size: int,
        action_repeat: int | None = None,
        oversampling: int = 1,
        processes: int | None = None,
    ):
        """Start the processes and wait until all can draw."""
        self.count = count
        total = min(count, processes or usable_cores())
        self._workers: list[Worker] = []
        try:
            for number in range(total):
                held = len(range(number, count, total))
                self._workers.append(_start((name, held, size, action_repeat, oversampling)))
            facts = [self._receive(worker) for worker in self._workers]
        except BaseException:
            self.close()
            raise
        self.action_size, self.action_repeat = facts[0]

    def reset(self, seeds: dict[int, int]) -> dict[int, np.ndarray]:
        """First frames of the episodes with these seeds, by the environments' numbers."""
        return self._all({number: ("reset", seed) for number, seed in seeds.items()})

    def send(self, actions: dict[int, np.ndarray]) -> None:
        """Begin a step in these environments; `receive` waits for it, and there is time for other things until then."""
        self._sent = list(actions)
        for number, action in actions.items():
            self._send(number, ("step", action))

    def receive(self) -> dict[int, Outcome]:
        """What the actions that were sent led to."""
        return {number: self._receive(self._of(number)) for number in self._sent}

    def step(self, actions: dict[int, np.ndarray]) -> dict[int, Outcome]:
        """`send` and `receive`."""
        self.send(actions)
        return self.receive()

    def resume(self, seeds: dict[int, int], taken: dict[int, np.ndarray]) -> None:
        """Return to where these episodes were after the actions `[time, action]`, without drawing."""
        self._all({number: ("resume", (seed, taken[number])) for number, seed in seeds.items()})

    def draw(self, number: int, width: int, height: int) -> np.ndarray:
        """A picture of an environment as it is now."""
        return self._all({number: ("draw", (width, height))})[number]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()
            worker.connection.close()
        self._workers = []

    def _of(self, number: int) -> Worker:
        return self._workers[number % len(self._workers)]

    def _send(self, number: int, command: tuple[str, Any]) -> None:
        try:
            self._of(number).connection.send((number // len(self._workers), *command))
        except (BrokenPipeError, ConnectionResetError):
            raise _ended(self._of(number)) from None

    def _all(self, commands: dict[int, tuple[str, Any]]) -> dict[int, Any]:
        for number, command in commands.items():
            self._send(number, command)
        return {number: self._receive(self._of(number)) for number in commands}

    def _receive(self, worker: Worker) -> Any:
        try:
            kind, content = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            raise _ended(worker) from None
        if kind == "error":
            raise KoopaxError(content)
        return content


def _ended(worker: Worker) -> KoopaxError:
    return KoopaxError(
        f"the process that draws ended with code {worker.process.wait()}: install {PACKAGES}, or use fewer processes."
    )


def _start(setup: tuple[str, int, int, int | None, int]) -> Worker:
    ours, theirs = Pipe()
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", f"from koopax.envs.renderers import main; main({theirs.fileno()})"],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=2,
        env={"MUJOCO_GL": "egl"} | os.environ | _ONE_THREAD | {"PYTHONPATH": paths},
    )
    theirs.close()
    ours.send(setup)
    return Worker(process, ours)


def main(descriptor: int) -> None:
    """A process that draws: take commands until the other end closes."""
    # Ctrl-C reaches the whole group of processes; only the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.getLogger("absl").setLevel(logging.ERROR)
    connection = Connection(descriptor)
    try:
        name, count, size, action_repeat, oversampling = connection.recv()
        options = {"size": size, "action_repeat": action_repeat, "oversampling": oversampling}
        tasks = [PixelTask(name, **options) for _ in range(count)]
        tasks[0].reset(0)
        connection.send(("ready", (tasks[0].action_size, tasks[0].action_repeat)))
        while True:
            number, command, content = connection.recv()
            connection.send(("done", _do(tasks[number], command, content)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except KoopaxError as error:
        connection.send(("error", str(error)))
    except Exception as error:  # of the environment
        connection.send(("error", f"the environment failed ({type(error).__name__}: {error})."))


def _do(task: PixelTask, command: str, content: Any) -> Any:
    if command == "step":
        return task.step(content)
    if command == "reset":
        return task.reset(content)
    if command == "draw":
        return task.camera.draw(*content)
    seed, actions = content
    task.env.reset(seed=seed)
    for action in actions:
        task.step(action, draw=False)
    return None
