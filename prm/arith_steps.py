"""`arith-steps`: a step scorer by rules for the embedded task, which knows the truth of every line.

A line is right (score 1) or wrong (score 0); there is nothing between and nothing learnt:

* ``12 + 3 = 15`` is right when its arithmetic holds *and* it is the next operation of the story on
  the number that the story has reached, so it uses the previous result. Factors and summands may be
  swapped, and products may be worked out early.
* ``answer: N`` is right when N is the gold, the first time it is written.
* Everything else is wrong: other words, a line that works on from a wrong result, a right line
  written twice.

The truth is a pure function of the problem (its column ``moves``) and of the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from stepmark.tasks import check_steps
from stepmark.types import StepItem, StepScores

from .steps import Span, split_steps

__all__ = ["ArithSteps"]


class ArithSteps:
    """Scores the lines of a solution to an `arith` problem; see the rules above.

    >>> from stepmark.tasks import load_task
    >>> problem = load_task("arith?size=1", "test").problems[0]
    >>> ArithSteps().score([StepItem(problem, ("answer: -1",))])[0].scores
    (0.0,)
    """

    key: ClassVar[str] = "arith-steps@1"
    columns: ClassVar[frozenset[str]] = frozenset({"moves"})
    """What the data must tell of each problem: the story as signs and numbers."""

    def segment(self, text: str) -> tuple[Span, ...]:
        """One step a line."""
        return split_steps(text, "newline")

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """1.0 for every line that is true of its problem, 0.0 for the others."""
        return [
            StepScores(tuple(map(float, check_steps(item.problem, item.steps))), self.key)
            for item in items
        ]
