"""Where a finished run stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepmark.store.run import RunFolder
from stepmark.training.checkpoint import TrainingState

__all__ = ["TrainResult", "result_of"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where a finished run stands."""

    step: int
    final: Path
    """A plain Hugging Face folder."""
    best: Path | None
    """The checkpoint with the highest best metric; None without a held-out evaluation."""
    best_step: int | None
    best_value: float | None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the last step, and of the last evaluation with ``eval/`` in front."""


def result_of(run: RunFolder, state: TrainingState) -> TrainResult:
    """What the folder of a finished run says of it."""
    best = run.checkpoints / "best"
    row = next((row for row in reversed(run.metrics()) if row["step"] == state.step), {})
    last = {name: n for name, n in row.items() if name != "step" and n is not None}
    return TrainResult(
        step=state.step,
        final=run.checkpoints / "final",
        best=best if best.is_dir() else None,
        best_step=state.best_step,
        best_value=state.best,
        metrics={**last, **state.evaluation},
    )
