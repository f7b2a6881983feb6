"""What is mended or refused in the rows of every format alike, each by a named option."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepmark.types import LabelledSteps

from .cells import choice_of
from .rejects import Rejected, RejectReason

__all__ = ["Repairs", "unify_line_ends"]


@dataclass(frozen=True, slots=True)
class Repairs:
    """How rows are mended; what is not mended is rejected.

    Raises:
        ConfigError: an option has a value that it does not know.
    """

    after_error: str = "keep"
    """Labels after the first step labelled 0: ``keep`` what the file says, ``mask`` them, or call
    all those steps wrong (``negative``)."""
    empty_steps: str = "reject"
    """A step of blanks: ``reject`` its row, or ``drop`` the step with its label."""
    unlabelled: str = "reject"
    """A row in which no step has a label: ``reject`` it, or keep it (``mask``) for scoring."""
    duplicates: str = "keep"
    """Rows equal in problem, steps and labels: ``keep`` them, or ``drop`` all but the first."""

    def __post_init__(self) -> None:
        choice_of("after_error", self.after_error, ("keep", "mask", "negative"))
        choice_of("empty_steps", self.empty_steps, ("reject", "drop"))
        choice_of("unlabelled", self.unlabelled, ("reject", "mask"))
        choice_of("duplicates", self.duplicates, ("keep", "drop"))

    def apply(self, labelled: LabelledSteps, repaired: Counter[str]) -> LabelledSteps:
        """The mended solution; what was mended is counted.

        Raises:
            Rejected: it cannot be used as it is, and no option says how to mend it.
        """
        if not labelled.problem.text.strip():
            raise Rejected(RejectReason.NO_PROBLEM, "the problem is empty")
        if any(not step.strip() for step in labelled.steps):
            labelled = self._without_empty_steps(labelled, repaired)
        if not labelled.steps:
            raise Rejected(RejectReason.NO_STEPS, "the solution has no step")
        if all(label is None for label in labelled.labels) and self.unlabelled == "reject":
            raise Rejected(
                RejectReason.NO_LABELS,
                f"none of the {len(labelled.steps)} steps has a label; unlabelled=mask keeps them",
            )
        return self._after_error(labelled, repaired)

    def _without_empty_steps(
        self, labelled: LabelledSteps, repaired: Counter[str]
    ) -> LabelledSteps:
        kept = [index for index, step in enumerate(labelled.steps) if step.strip()]
        if self.empty_steps == "reject":
            empty = next(i for i, step in enumerate(labelled.steps) if not step.strip())
            raise Rejected(
                RejectReason.EMPTY_STEP,
                f"step {empty + 1} of {len(labelled.steps)} is {labelled.steps[empty]!r:.20}; "
                "empty_steps=drop leaves it out with its label",
            )
        repaired["empty_steps"] += 1
        steps = tuple(labelled.steps[index] for index in kept)
        return replace(labelled, steps=steps, labels=tuple(labelled.labels[i] for i in kept))

    def _after_error(self, labelled: LabelledSteps, repaired: Counter[str]) -> LabelledSteps:
        if self.after_error == "keep" or 0 not in labelled.labels:
            return labelled
        error = labelled.labels.index(0)
        label = None if self.after_error == "mask" else 0.0
        after = (label,) * (len(labelled.labels) - error - 1)
        labels = labelled.labels[: error + 1] + after
        repaired["after_error"] += labels != labelled.labels
        return replace(labelled, labels=labels)


def unify_line_ends(row: Mapping[str, Any]) -> dict[str, Any] | None:
    r"""The row with ``\n`` for every ``\r\n`` in its texts; None where there is none.

    A lone ``\r`` stays: in files of mathematics it is what a badly escaped ``\right`` left behind.
    """
    return _unified(row) if _has_carriage_return(row) else None


def _has_carriage_return(row: Mapping[str, Any]) -> bool:
    waiting: list[Any] = [row]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if "\r\n" in value:
                return True
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return False


def _unified(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\r\n", "\n")
    if isinstance(value, Mapping):
        return {key: _unified(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unified(item) for item in value]
    return value
