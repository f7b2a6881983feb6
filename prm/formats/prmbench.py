"""PRMBench (arXiv:2501.03124): right solutions into which errors were written.

``error_steps`` counts from 1. A step that only carries an earlier error on is not among them, and
has the label 1 here as there: these labels say where an error was *made*, which differs from what
PRM800K and ProcessBench say of the steps after an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelledSteps, Problem

from .cells import need_text, optional_text, text_list
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id

__all__ = ["PrmBench"]

Row = Mapping[str, Any]


class PrmBench:
    """The format ``prmbench``: columns modified_question, modified_process and error_steps."""

    name: ClassVar[str] = "prmbench"

    @staticmethod
    def matches(row: Row) -> bool:
        """A modified question as text, modified process and error steps as lists."""
        lists = [row.get("modified_process"), row.get("error_steps")]
        is_text = isinstance(row.get("modified_question"), str)
        return is_text and all(isinstance(one, list) for one in lists)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        text, steps = need_text(row, "modified_question"), text_list(row, "modified_process")
        wrong = _numbers(row.get("error_steps"), len(steps))
        meta = {key: row[key] for key in ("idx", "classification", "reason") if key in row}
        yield LabelledSteps(
            Problem(problem_id(text), text, optional_text(row, "ground_truth")),
            steps,
            tuple(float(number not in wrong) for number in range(1, len(steps) + 1)),
            origin="planted",
            source=self.name,
            meta=meta,
        )


def _numbers(given: Any, steps: int) -> set[int]:
    if not isinstance(given, list):
        raise Rejected(RejectReason.COLUMN, f"error_steps is {given!r:.60}, not a list")
    for number in given:
        if not isinstance(number, int) or isinstance(number, bool):
            raise Rejected(
                RejectReason.COLUMN, f"error_steps holds {number!r:.40}, no whole number"
            )
        if not 1 <= number <= steps:
            raise Rejected(
                RejectReason.ERROR_OUT_OF_RANGE,
                f"error_steps holds {number} and there are {steps} steps; it counts from 1",
            )
    return set(given)
