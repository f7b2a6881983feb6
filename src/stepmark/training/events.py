"""What a training loop says while it runs: events that every loop has, for bars and live views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepmark.types import Marked

__all__ = ["Evaluated", "Saved", "Started", "StepDone"]


@dataclass(frozen=True, slots=True)
class Started:
    """The loop begins, or continues, after this step."""

    step: int
    """0 for a new run."""
    steps: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """One batch was learnt from."""

    step: int
    steps: int
    metrics: Mapping[str, float]
    sample: Marked | None
    """One of its completions with its marks; None where nothing is sampled."""


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
