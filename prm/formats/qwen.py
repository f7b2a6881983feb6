"""The chat rows of Qwen2.5-Math-PRM: ``<extra_0>`` ends every step of the assistant's turn.

Published rows are inputs for scoring, without labels: they are rejected unless ``unlabelled=mask``
keeps them. Labels stand in a column ``labels`` (or ``label``), one per tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepmark.types import LabelKind, LabelledSteps, Problem

from .cells import label_list, other_columns
from .marked import Tail
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id
from .turns import turns_of

__all__ = ["QwenChat", "labels_beside"]

Row = Mapping[str, Any]


class QwenChat:
    """The format ``qwen``: a column messages (or conversations) with one question and one answer.

    The problem is a turn of its own, so a tag in its text is text.

    Args:
        tag: the text that ends a step.
        tail: what becomes of text after the last tag: ``reject`` the row, ``mask`` (a step without
            label) or ``drop`` the text.
    """

    name: ClassVar[str] = "qwen"

    def __init__(self, tag: str = "<extra_0>", tail: str = "reject") -> None:
        self.tag, self.tail, self._tail = tag, tail, Tail(tail)

    @staticmethod
    def matches(row: Row) -> bool:
        """A conversation in which the assistant writes ``<extra_0>``."""
        try:
            turns = turns_of(row)
        except Rejected:
            return False
        return any("<extra_0>" in turn.text for turn in turns if turn.role == "assistant")

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        turns = turns_of(row)
        if [turn.role for turn in turns] != ["user", "assistant"]:
            said = ", ".join(turn.role for turn in turns) or "nobody"
            raise Rejected(
                RejectReason.TURN_ORDER, f"{said} speaks; one question and one answer are needed"
            )
        problem = turns[0].text
        *steps, tail = turns[1].text.split(self.tag)
        labels, kind = labels_beside(row, len(steps))
        kept, labels = self._tail.apply([step.strip() for step in steps], labels, tail)
        yield LabelledSteps(
            Problem(problem_id(problem), problem, None),
            kept,
            labels,
            kind,
            source=self.name,
            meta=other_columns(row, "messages", "conversations", "labels", "label"),
        )


def labels_beside(row: Row, steps: int) -> tuple[tuple[float | None, ...], LabelKind]:
    """The labels in the column ``labels`` or ``label``; all None where there is neither.

    Raises:
        Rejected: there are more or fewer than steps, or one is no label.
    """
    name = "labels" if "labels" in row else "label"
    if row.get(name) is None:
        return (None,) * steps, "hard"
    return label_list(row[name], steps)
