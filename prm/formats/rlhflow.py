"""RLHFlow: a conversation in which the user says a step and the assistant ``+`` or ``-``.

The first turn holds the problem and the first step. The labels come from rollouts, as those of
Math-Shepherd do: ``+`` if one of the completions from here reached the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelledSteps, Problem

from .cells import MARKS, other_columns
from .marked import StepMark, Tail
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id
from .turns import turns_of

__all__ = ["RlhFlow"]

Row = Mapping[str, Any]


class RlhFlow:
    """The format ``rlhflow``: a column conversations (or messages) of alternating turns.

    Args:
        step_mark: the text that begins the first step, once in the first turn; several to be tried
            in order are divided by ``|``.
        tail: what becomes of a last step that was not answered: ``reject`` the row, ``mask`` (a
            step without label) or ``drop`` the step.
    """

    name: ClassVar[str] = "rlhflow"

    def __init__(self, step_mark: str = "Step 1:", tail: str = "reject") -> None:
        self.step_mark, self.tail = step_mark, tail
        self._mark, self._tail = StepMark(step_mark), Tail(tail)

    @staticmethod
    def matches(row: Row) -> bool:
        """A conversation in which the assistant's first turn is ``+`` or ``-``."""
        try:
            said = [turn.text.strip() for turn in turns_of(row) if turn.role == "assistant"]
        except Rejected:
            return False
        return bool(said) and said[0] in MARKS

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        turns = turns_of(row)
        for number, turn in enumerate(turns, 1):
            if turn.role != ("user" if number % 2 else "assistant"):
                raise Rejected(
                    RejectReason.TURN_ORDER, f"turn {number} is the {turn.role}'s; they alternate"
                )
        if not turns:
            raise Rejected(RejectReason.NO_STEPS, "the conversation has no turn")
        cut = self._mark.find(turns[0].text)
        problem = turns[0].text[:cut].strip()
        said = [turns[0].text[cut:], *(turn.text for turn in turns[2::2])]
        labels = tuple(_mark_of(turn.text, 2 * i + 2) for i, turn in enumerate(turns[1::2]))
        steps = tuple(step.strip() for step in said[: len(labels)])
        tail = said[-1] if len(said) > len(labels) else ""
        steps, labels = self._tail.apply(steps, labels, tail)
        yield LabelledSteps(
            Problem(problem_id(problem), problem, None),
            steps,
            labels,
            origin="rollouts",
            source=self.name,
            meta=other_columns(row, "messages", "conversations"),
        )


def _mark_of(text: str, number: int) -> float | None:
    if text.strip() not in MARKS:
        raise Rejected(
            RejectReason.LABEL_VALUE, f"turn {number} is {text!r:.40}; the assistant says + or -"
        )
    return MARKS[text.strip()]
