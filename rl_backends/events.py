"""What the loop says while it runs: one stream of events, for progress bars and live views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepmark.training.events import Evaluated, Saved, Started, StepDone

from .scoring import StepCounts

__all__ = ["Evaluated", "Event", "Refreshed", "Saved", "Started", "StepDone", "StepsCounted"]


@dataclass(frozen=True, slots=True)
class StepsCounted:
    """The first completions were divided into steps, and are fit for process rewards."""

    step: int
    counts: StepCounts


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The reward models learnt from the outer iteration that ends with this step."""

    step: int
    iteration: int
    """From 0."""
    metrics: Mapping[str, float]


Event = Started | StepsCounted | StepDone | Refreshed | Evaluated | Saved
