"""Stopping a loop between two steps when the user or a scheduler asks for it."""

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_request() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets instead of breaking into the work; a second one breaks in as usual.

    Outside the main thread signals can't be caught, so there the event stays unset.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def request(number: int, frame: object) -> None:
        requested.set()
        restore()

    for number in SIGNALS:
        signal.signal(number, request)
    try:
        yield requested
    finally:
        restore()
