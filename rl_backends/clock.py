"""How long marking took, and how much of it was hidden behind the generation of other groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

__all__ = ["MarkingClock"]

P = ParamSpec("P")
T = TypeVar("T")


class MarkingClock:
    """Adds up the seconds of one step; one thread marks, another one waits."""

    def __init__(self) -> None:
        self.marking_s = 0.0
        self.waiting_s = 0.0

    def timed(self, mark: Callable[P, T]) -> Callable[P, T]:
        """The same function, whose time counts as marking."""

        def marked(*args: P.args, **kwargs: P.kwargs) -> T:
            started = time.monotonic()
            try:
                return mark(*args, **kwargs)
            finally:
                self.marking_s += time.monotonic() - started

        return marked

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, nothing is generated any more: what is marked now is waited for."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.waiting_s += time.monotonic() - started

    def take(self) -> dict[str, float]:
        """The seconds since the last call, for ``timings.jsonl``; then it begins again."""
        hidden = max(0.0, self.marking_s - self.waiting_s)
        found = {"marking_s": self.marking_s, "marking_hidden_s": hidden}
        self.marking_s = self.waiting_s = 0.0
        return found
