"""What the loop says while it runs: one stream of events, for progress bars and live views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepmark.types import Marked

from .scoring import StepCounts

__all__ = ["Evaluated", "Event", "Refreshed", "Saved", "Started", "StepDone", "StepsCounted"]


@dataclass(frozen=True, slots=True)
class Started:
    """The loop begins, or continues, after this step."""

    step: int
    """0 for a new run."""
    steps: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """One rollout batch was learnt from."""

    step: int
    steps: int
    metrics: Mapping[str, float]
    sample: Marked | None
    """One of its completions with its marks; None when there was none."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A held-out evaluation is done."""

    step: int
    steps: int
    metrics: Mapping[str, float]
    is_best: bool


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is on the disk."""

    step: int
    path: Path


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
