"""ProcessBench (arXiv:2412.06559): the index of the first wrong step, as people found it.

``label`` counts from 0; -1 says that no step is wrong. Steps before the first error are right. Of
the steps after it nothing is said: they have no label, and are not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelledSteps, Problem

from .cells import need_text, optional_text, other_columns, text_list
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id

__all__ = ["ProcessBench", "first_error_labels"]

Row = Mapping[str, Any]


class ProcessBench:
    """The format ``processbench``: columns problem, steps, label and final_answer_correct."""

    name: ClassVar[str] = "processbench"

    @staticmethod
    def matches(row: Row) -> bool:
        """A problem as text, steps as a list, a label that is no list."""
        typed = isinstance(row.get("problem"), str) and isinstance(row.get("steps"), list)
        return typed and "label" in row and not isinstance(row["label"], list)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        text, steps = need_text(row, "problem"), text_list(row, "steps")
        labels = first_error_labels(row.get("label"), len(steps))
        correct = row.get("final_answer_correct")
        if correct is not None and not isinstance(correct, bool):
            raise Rejected(
                RejectReason.COLUMN, f"final_answer_correct is {correct!r:.40}, not true or false"
            )
        read = ("problem", "steps", "label", "final_answer_correct", "gold")
        yield LabelledSteps(
            Problem(problem_id(text), text, optional_text(row, "gold")),
            steps,
            labels,
            origin="first_error",
            source=self.name,
            final_correct=correct,
            meta=other_columns(row, *read),
        )


def first_error_labels(index: Any, steps: int) -> tuple[float | None, ...]:
    """Labels from the index of the first wrong step: 1 before it, 0 there, None after it.

    Raises:
        Rejected: the index is no whole number from -1 to the last step.

    >>> first_error_labels(1, 3), first_error_labels(-1, 2)
    ((1.0, 0.0, None), (1.0, 1.0))
    """
    if not isinstance(index, int) or isinstance(index, bool):
        raise Rejected(RejectReason.COLUMN, f"label is {index!r:.40}, not a whole number")
    if not -1 <= index < steps:
        raise Rejected(
            RejectReason.ERROR_OUT_OF_RANGE,
            f"label is {index} and there are {steps} steps; it counts from 0, -1 for no error",
        )
    if index == -1:
        return (1.0,) * steps
    return (1.0,) * index + (0.0,) + (None,) * (steps - index - 1)
