"""TRL's stepwise supervision: a prompt, its completions (the steps), one label each.

Both variants are read: labels as true and false, and as numbers between 0 and 1, which stay what
they are. TRL removed the type with its trainer; it is still the layout in which data sets are
exchanged, so it is written too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelledSteps, Problem

from .cells import label_list, need_text, other_columns, text_list
from .marked import labelled_head
from .rejects import LeftOut
from .rows import problem_id

__all__ = ["TrlStepwise"]

Row = Mapping[str, Any]


class TrlStepwise:
    """The format ``trl``: columns prompt, completions and labels."""

    name: ClassVar[str] = "trl"

    @staticmethod
    def matches(row: Row) -> bool:
        """A prompt as text, completions and labels as lists."""
        lists = isinstance(row.get("completions"), list) and isinstance(row.get("labels"), list)
        return lists and isinstance(row.get("prompt"), str)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row; its texts stay as they are."""
        prompt, steps = need_text(row, "prompt"), text_list(row, "completions")
        labels, kind = label_list(row.get("labels"), len(steps), estimates=True)
        meta = other_columns(row, "prompt", "completions", "labels")
        problem = Problem(problem_id(prompt), prompt, None)
        yield LabelledSteps(problem, steps, labels, kind, source=self.name, meta=meta)

    def write(self, labelled: LabelledSteps) -> dict[str, Any]:
        """The row for TRL: true and false where labels are hard, else numbers.

        TRL knows no masked label. Steps after the last label are cut off: nothing is said of them.

        Raises:
            Rejected: a step before the last label has none.
        """
        steps, labels = labelled_head(labelled, "TRL")
        hard = labelled.kind == "hard"
        return {
            "prompt": labelled.problem.text,
            "completions": list(steps),
            "labels": [bool(label) if hard else label for label in labels],
        }
