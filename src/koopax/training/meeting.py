"""The processes of a training meet at an address before JAX connects them.

JAX ends a whole process, with a crash, where nobody answers at the coordinator's address, where somebody else does, or
where not all come in time. So process 0 listens there first, and each other process says its number; once all have
come, the port is left to JAX. Whoever is missing or wrong is told of in one sentence.
"""

import contextlib
import json
import socket
import time

from koopax._errors import KoopaxError
from koopax._untrusted import one_line

GO, NO = "go", "no: "
LONGEST = 1_000
"""Bytes of a line; whoever sends more is somebody else."""
ONE_CALL = 5.0
"""Seconds for one connection, or for what it sends first."""


def meet(address: str, number: int, processes: int, seconds: float) -> None:
    """Return once all processes of a training have come to HOST:PORT; raises where they have not after some seconds."""
    until = time.monotonic() + seconds
    host, _, port = address.rpartition(":")
    if number == 0:
        _receive_all(address, int(port), processes, until, seconds)
    else:
        _come(address, host.strip("[]"), int(port), number, processes, until, seconds)


def _receive_all(address: str, port: int, processes: int, until: float, seconds: float) -> None:
    """Process 0: wait for the others and let them go on together."""
    arrived: dict[int, socket.socket] = {}
    try:
        both = socket.has_dualstack_ipv6()
        server = socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
        )
    except OSError as error:
        raise KoopaxError(
            f"process 0 can't listen at the coordinator's address {address} ({one_line(error)}): give a port that is "
            "free on its machine."
        ) from error
    try:
        with server:
            while len(arrived) < processes - 1:
                server.settimeout(max(0.01, until - time.monotonic()))
                try:
                    caller, _ = server.accept()
                except TimeoutError:
                    missing = ", ".join(str(n) for n in range(1, processes) if n not in arrived)
                    raise KoopaxError(
                        f"process {missing} of {processes} did not come to {address} within {seconds:g} s: start all "
                        "of them, with the same address."
                    ) from None
                _greet(caller, arrived, processes)
        for caller in arrived.values():
            _answer(caller, GO)
    finally:
        for caller in arrived.values():
            caller.close()


def _greet(caller: socket.socket, arrived: dict[int, socket.socket], processes: int) -> None:
    """Note who has come; who does not belong here is told so."""
    try:
        caller.settimeout(ONE_CALL)
        said = json.loads(_line(caller))
        number, theirs = int(said["process"]), int(said["processes"])
    except (OSError, ValueError, TypeError, KeyError):
        caller.close()  # a stranger
        return
    if theirs != processes:
        _answer(
            caller, f"{NO}process {number} is one of {theirs}, process 0 one of {processes}: give all the same number."
        )
    elif not 0 < number < processes or number in arrived:
        _answer(caller, f"{NO}there is a process {number} already: give each another --process-id.")
    else:
        arrived[number] = caller
        return
    caller.close()


def _come(address: str, host: str, port: int, number: int, processes: int, until: float, seconds: float) -> None:
    """Another process: find process 0 and wait for its word."""
    with _called(address, host, port, until, seconds) as caller:
        try:
            caller.sendall(json.dumps({"process": number, "processes": processes}).encode() + b"\n")
            caller.settimeout(max(ONE_CALL, until - time.monotonic()))
            said = _line(caller)
            if said != GO and not said.startswith(NO):
                raise ValueError("it says something else")
        except TimeoutError:
            raise KoopaxError(
                f"the {processes} processes did not meet at {address} within {seconds:g} s: start all of them, with "
                "the same address."
            ) from None
        except (OSError, ValueError) as error:
            raise KoopaxError(
                f"what answers at {address} is not process 0 of this training, or it has ended ({one_line(error)}): "
                "give the address of process 0, with a port that nothing else uses."
            ) from error
    if said != GO:
        raise KoopaxError(said.removeprefix(NO))


def _called(address: str, host: str, port: int, until: float, seconds: float) -> socket.socket:
    """A connection to process 0, which may start later than this one."""
    while True:
        try:
            return socket.create_connection((host, port), timeout=min(ONE_CALL, seconds))
        except OSError as error:
            if time.monotonic() >= until:
                raise KoopaxError(
                    f"nobody answers at the coordinator's address {address} after {seconds:g} s ({one_line(error)}): "
                    "start process 0 there, and open the port."
                ) from error
            time.sleep(0.2)


def _line(caller: socket.socket) -> str:
    """What comes until the end of a line."""
    found = b""
    while not found.endswith(b"\n"):
        more = caller.recv(LONGEST)
        found += more
        if not more or len(found) > LONGEST:
            raise ValueError("no line of words came" if more else "it has hung up")
    return found.decode().strip()


def _answer(caller: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # it may have gone since, which the training will notice
        caller.sendall(text.encode() + b"\n")
