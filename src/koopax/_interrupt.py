"""Ctrl-C as a request to stop after the steps that are under way, so that nothing is lost."""

import signal
import threading
from types import FrameType
from typing import NoReturn


class StopRequest:
    """A context in which the first SIGINT or SIGTERM sets `requested`; a second SIGINT interrupts.

    Outside the main thread signals are left alone.
    """

    def __init__(self) -> None:
        self.requested = False
        self._number = signal.SIGINT
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self._number = signal.Signals(number)

    def interrupt(self, message: str) -> NoReturn:
        """Raise what the signal that was met asks of a program: KeyboardInterrupt, or SystemExit(143) for SIGTERM."""
        if self._number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt(message)
