"""What roll-outs say of a step, and of all steps of a solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stepmark.statistics import wilson
from stepmark.types import LabelKind, LabelledSteps

from .items import ToAnnotate

__all__ = ["AnnotatedSteps", "StepEstimate", "StepReason", "estimate_of", "labelled_row"]

DIGITS = 6
"""Of shares and bounds in files."""


class StepReason(StrEnum):
    """Where the label of a step comes from, or why it has none."""

    ROLLOUTS = "rollouts"
    """Completions of the prefix that ends in it were marked."""
    VERDICT = "verdict"
    """It is the last step: the verdict on the solution itself."""
    REACHED = "reached"
    """Not asked: a later prefix, or the right solution itself, reached the answer."""
    AFTER_ERROR = "after_error"
    """No label: a step before it is the first error."""
    NO_VERDICT = "no_verdict"
    """No label: no roll-out got a verdict with a score."""
    NO_ROOM = "no_room"
    """No label: prefix and roll-out do not fit in the model."""
    UNFINISHED = "unfinished"
    """No label: the solution was cut off in this step."""
    NOT_ASKED = "not_asked"
    """No label: the settings leave it out, or the search ended before it."""


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """The label of one step with what it stands on."""

    label: float | None
    """In [0, 1]; None where nothing is known."""
    reason: StepReason
    successes: int = 0
    """Roll-outs that reached the answer."""
    n_rollouts: int = 0
    """Roll-outs with a verdict: those without one do not count."""

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share that reaches the answer; [0, 1] without roll-outs.

        A prefix that was settled early was not drawn a fixed number of times, so that the interval
        is only a guide there.
        """
        low, high = wilson(self.successes, self.n_rollouts)
        return round(low, DIGITS), round(high, DIGITS)


@dataclass(frozen=True, slots=True)
class AnnotatedSteps:
    """A labelled solution with what its labels stand on."""

    item: ToAnnotate
    row: LabelledSteps
    """Origin ``rollouts``; its meta holds `StepEstimate`s as columns under ``annotation``."""
    estimates: tuple[StepEstimate, ...]
    """One per step."""


def estimate_of(
    outcomes: Sequence[bool | None], kind: LabelKind, threshold: float = 0.0
) -> StepEstimate:
    """The label that roll-outs give: whether enough of them reached the answer, or their share.

    Args:
        outcomes: whether each roll-out reached it; None for one without a verdict.
        kind: hard or soft.
        threshold: of hard labels: the share that must reach it; at 0 one roll-out is enough.

    >>> estimate_of([True, False, None], "hard").label, estimate_of([True, False], "soft").label
    (1.0, 0.5)
    >>> estimate_of([True, False, False], "hard", threshold=0.5).label
    0.0
    """
    known = [outcome for outcome in outcomes if outcome is not None]
    if not known:
        return StepEstimate(None, StepReason.NO_VERDICT)
    hits = sum(known)
    share = hits / len(known)
    hard = 1.0 if hits and share >= threshold else 0.0
    label = hard if kind == "hard" else share
    return StepEstimate(label, StepReason.ROLLOUTS, hits, len(known))


def labelled_row(
    item: ToAnnotate, estimates: Sequence[StepEstimate], kind: LabelKind, about: Mapping[str, Any]
) -> LabelledSteps:
    """The row that a reward model learns from.

    Args:
        item: the solution.
        estimates: one per step.
        kind: hard or soft.
        about: what made the labels (method, completer, sampling, seed, verifier).
    """
    intervals = [estimate.interval for estimate in estimates]
    columns = {
        "reason": [str(estimate.reason) for estimate in estimates],
        "n_rollouts": [estimate.n_rollouts for estimate in estimates],
        "successes": [estimate.successes for estimate in estimates],
        "low": [low for low, _ in intervals],
        "high": [high for _, high in intervals],
    }
    return LabelledSteps(
        item.prompt.problem,
        item.steps,
        tuple(
            None if estimate.label is None else round(estimate.label, DIGITS)
            for estimate in estimates
        ),
        kind=kind,
        origin="rollouts",
        source="annotate",
        final_correct=None if item.verdict is None else item.verdict.correct,
        meta={"key": item.key, **item.meta, "annotation": {**about, **columns}},
    )
