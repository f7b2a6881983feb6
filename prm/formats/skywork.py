"""Skywork-o1-PRM: a problem and a response whose lines are the steps.

Published rows are inputs for scoring, without labels: they are rejected unless ``unlabelled=mask``
keeps them. Labels stand in a column ``labels`` (or ``label``), one per line. A blank line is no
step, though the published scorer gives it a score: where labels were given to blank lines too, they
are empty steps (``empty_steps=drop`` leaves them out with their labels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelledSteps, Problem

from .cells import need_text, other_columns
from .qwen import labels_beside
from .rejects import LeftOut
from .rows import problem_id

__all__ = ["Skywork"]

Row = Mapping[str, Any]


class Skywork:
    """The format ``skywork``: columns problem and response."""

    name: ClassVar[str] = "skywork"

    @staticmethod
    def matches(row: Row) -> bool:
        """A problem and a response as texts."""
        return isinstance(row.get("problem"), str) and isinstance(row.get("response"), str)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        problem = need_text(row, "problem")
        lines = need_text(row, "response").rstrip("\n").split("\n")
        steps = [line for line in lines if line.strip()]
        given = row.get("labels", row.get("label"))
        if isinstance(given, list) and len(given) == len(lines):
            steps = lines
        labels, kind = labels_beside(row, len(steps))
        yield LabelledSteps(
            Problem(problem_id(problem), problem, None),
            tuple(step.strip() for step in steps),
            labels,
            kind,
            source=self.name,
            meta=other_columns(row, "problem", "response", "labels", "label"),
        )
