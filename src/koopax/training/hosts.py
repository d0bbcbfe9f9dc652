"""Several processes in one training: how they find each other, compare what they have, and tell that one is gone.

JAX does the work: `jax.distributed` connects the processes, by what SLURM, Kubernetes or MPI tell, or by an address;
collectives move the numbers. On CPUs that is Gloo. Here is what is said where it fails.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from koopax._errors import DivergedError, KoopaxError
from koopax._provenance import versions
from koopax._untrusted import one_line
from koopax.training.meeting import meet
from koopax.training.resources import Hosts

ENDINGS = (None, "finished", "time", "patience", "interrupted")
"""Why a training ends, as processes tell each other; None while it goes on."""
GRACE_SECONDS = 5


class LostError(KoopaxError):
    """A process of a training has ended or can't be reached: what was trained since the last checkpoint is lost."""


class SharedError(KoopaxError):
    """What every process of a training has found, so that all of them end by themselves."""


def connect(hosts: Hosts) -> None:
    """Join the other processes; before the first use of a device."""
    if not hosts.distributed:
        return
    import jax

    if hosts.coordinator is not None:
        assert hosts.process_id is not None  # else the hosts have complained
        assert hosts.processes is not None
        meet(hosts.coordinator, hosts.process_id, hosts.processes, hosts.connect_seconds)
    # A process that is gone is noticed by the next mean over devices; heartbeats, which end all of them with a crash,
    # are for hosts that vanish without a word, and must not take a busy one for such. At the end, the first one writes
    # the last checkpoint and the others wait for it.
    limits = {"heartbeat_timeout_seconds": 100, "shutdown_timeout_seconds": 300}
    limits["initialization_timeout"] = hosts.connect_seconds
    logging.getLogger("jax._src.distributed").setLevel(logging.ERROR)
    try:
        jax.distributed.initialize(hosts.coordinator, hosts.processes, hosts.process_id, **limits)  # type: ignore[arg-type]
    except Exception as error:
        if hosts.coordinator is None:
            raise KoopaxError(
                f"no cluster was found that says who is who ({one_line(error)}): give --coordinator HOST:PORT, "
                "--process-id and --processes."
            ) from error
        raise KoopaxError(
            f"the {hosts.processes} processes did not meet at {hosts.coordinator} within {hosts.connect_seconds} s "
            f"({one_line(error)}): start all of them, with the same address."
        ) from error
    found = versions()
    check_alike({name: found[name] for name in ("koopax", "jax", "jaxlib", "equinox", "optax") if name in found})


def is_first() -> bool:
    """Whether this process writes and speaks for the others."""
    import jax

    return jax.process_index() == 0


def several() -> bool:
    """Whether there are other processes."""
    import jax

    return jax.process_count() > 1


def gather(numbers: np.ndarray) -> np.ndarray:
    """The numbers of every process, by process [processes, …]."""
    from jax.experimental import multihost_utils

    with collective():
        return np.asarray(multihost_utils.process_allgather(numbers))


def broadcast(text: str) -> str:
    """What the first process says."""
    from jax.experimental import multihost_utils

    if not several():
        return text
    content = np.frombuffer(text.encode(), np.uint8)
    sizes = gather(np.asarray([len(content)], np.int32))
    room = np.zeros(int(sizes[0, 0]), np.uint8)
    if is_first():
        room[:] = content
    with collective():
        return np.asarray(multihost_utils.broadcast_one_to_all(room)).astype(np.uint8).tobytes().decode()


def broadcast_tree(tree: Any) -> Any:
    """The arrays of the first process, in a tree that all have."""
    from jax.experimental import multihost_utils

    if not several():
        return tree
    with collective():
        return multihost_utils.broadcast_one_to_all(tree)


def check_alike(about: dict[str, str]) -> None:
    """Raise unless all processes have the same of everything, such as versions and data."""
    if not several():
        return
    room = 4096
    mine = np.frombuffer(json.dumps(about, sort_keys=True).encode()[:room].ljust(room), np.uint8)
    texts = [bytes(row.astype(np.uint8)).decode().rstrip() for row in gather(mine)]
    first = json.loads(texts[0])
    for number, text in enumerate(texts[1:], start=1):
        other = json.loads(text)
        for name, value in first.items():
            if other.get(name) != value:
                raise SharedError(
                    f"process {number} has {name} {other.get(name)}, process 0 {value}: all processes need the same."
                )


@contextmanager
def together() -> Iterator[None]:
    """Work that each process does for itself, and after which all go on or none does: an error of one is one of all."""
    if not several():
        yield
        return
    failed: KoopaxError | None = None
    try:
        yield
    except KoopaxError as error:
        failed = error
    room = 1024
    said = str(failed).encode()[:room] if failed else b""
    everyone = gather(np.frombuffer(said.ljust(room), np.uint8))
    if failed is not None:
        raise SharedError(str(failed)) from failed
    for number, row in enumerate(everyone):
        if text := bytes(row.astype(np.uint8)).decode(errors="replace").strip():
            raise SharedError(f"process {number} can't go on: {text}")


@contextmanager
def collective() -> Iterator[None]:
    """Work in which every process takes part: where one is gone, a `LostError` says so."""
    import jax

    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # JAX raises either, by where in a program it notices; other ValueErrors are not about processes.
        if not several() or (isinstance(error, ValueError) and "Gloo" not in str(error)):
            raise
        raise LostError(
            f"another process of this training has ended or can't be reached ({one_line(error)}): start all "
            f"{jax.process_count()} again with --resume to go on from the last checkpoint."
        ) from error


def leave_others(error: KoopaxError, code: int) -> None:
    """End this process at once where the others of its training don't know of the error.

    They are told by that: waiting for them, as JAX does, would take minutes and end in a crash.
    """
    import jax

    if not jax.distributed.is_initialized() or isinstance(error, SharedError | DivergedError):
        return
    if is_first():
        time.sleep(GRACE_SECONDS)  # without it JAX ends the others, who may have the same to say
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
