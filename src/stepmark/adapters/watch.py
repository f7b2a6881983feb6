"""Errors of a verifier are no lesson for a policy: too many of them stop the run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from stepmark.errors import ConfigError, VerifierError
from stepmark.types import Status, Verdict

__all__ = ["ErrorWatch"]

WINDOW = 100
"""Verdicts that are looked back on: a worker lost now and then is no reason to stop."""


class ErrorWatch:
    """Counts errors among the last hundred verdicts, from any thread.

    Args:
        name: the verifier, for the message.
        max_error_share: largest share of the last hundred verdicts that may be errors, in [0, 1].

    Raises:
        ConfigError: the share is not in [0, 1].
    """

    def __init__(self, name: str, max_error_share: float) -> None:
        if not 0 <= max_error_share <= 1:
            raise ConfigError(
                f"max_error_share of {name!r} is {max_error_share!r}; it must lie in [0, 1], "
                "such as 0.1: a run stops when more of the last 100 verdicts are errors."
            )
        self.name = name
        self.max_error_share = max_error_share
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ErrorWatch], tuple[str, float]]:
        return ErrorWatch, (self.name, self.max_error_share)

    def see(self, verdicts: Iterable[Verdict]) -> None:
        """Take note of verdicts.

        Raises:
            VerifierError: more of the last hundred are errors than allowed; carries the newest
                traceback.
        """
        newest = ""
        with self._lock:
            for verdict in verdicts:
                is_error = verdict.status is Status.ERROR
                self._recent.append(is_error)
                if is_error:
                    newest = str(verdict.detail.get("traceback") or verdict.reason)
            wrong, seen = sum(self._recent), len(self._recent)
        if newest and wrong > self.max_error_share * WINDOW:
            raise VerifierError(
                f"{wrong} of the last {seen} verdicts of {self.name!r} are errors; max_error_share "
                f"allows {self.max_error_share:g} of {WINDOW}. Mend the verifier, then go on from "
                f"the last checkpoint. The newest error:\n{newest}"
            )
