"""Stopping by signal at a point from which the run can be resumed."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupted", "StopRequest"]

log = logging.getLogger(__name__)


class Interrupted(Exception):
    """A step was given up because a stop was asked for; the loop turns it into `Stopped`."""


class StopRequest:
    """Turns the first SIGINT or SIGTERM into a wish, and the second into an immediate stop.

    Used with ``with``; outside the main thread, where Python takes no signals, it does nothing.
    An immediate stop spoils nothing: files are appended whole and folders are renamed. A wish that
    came when there was nothing left to stop is passed on to the handler of before.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._earlier[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        if kind is None and self.number is not None:
            signal.raise_signal(self.number)  # it came too late for this run: whoever called stops

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        log.warning("Stopping at the next safe point; the same signal again stops at once.")

    def check(self) -> None:
        """Give up what is being collected, when a stop was asked for.

        Raises:
            Interrupted: it was.
        """
        if self.number is not None:
            raise Interrupted
