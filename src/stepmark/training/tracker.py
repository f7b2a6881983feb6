"""Where metrics go besides ``metrics.jsonl``, which the loop always writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

__all__ = ["Tracker"]


@runtime_checkable
class Tracker(Protocol):
    """Takes the metrics of a step. A run folder's ``log_metrics`` has this shape."""

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record one row; called once per step, in order."""
        ...
