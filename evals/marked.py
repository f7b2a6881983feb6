"""Marked rows beside what was recorded of them: where the two part, and in what way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from stepmark.types import Verdict

from .recorded import Recorded

__all__ = ["KINDS", "MarkedRow", "Square", "disagreements", "square", "statuses"]

KINDS = ("only_recorded", "only_ours", "no_verdict")
"""Disagreements: correct for the label only, for us only, a label and no score from us."""

Square = list[tuple[str, int, int]]
"""What we say, how many of those the label calls correct, how many wrong."""

WORDS = {True: "correct", False: "wrong", None: "no verdict"}


class MarkedRow(NamedTuple):
    """One recorded completion and what is said of it."""

    recorded: Recorded
    """Its label is what we are compared with."""
    verdict: Verdict
    other: Verdict | None = None
    """Of the verifier that stands in place of the label, where one does."""

    @property
    def kind(self) -> str:
        """The kind of disagreement, one of `KINDS`; empty where there is none."""
        label, correct = self.recorded.label, self.verdict.correct
        if label is None or label == correct:
            return ""
        if correct is None:
            return "no_verdict"
        return "only_recorded" if label else "only_ours"

    @property
    def rule(self) -> str:
        """The rule that decided; where there was nothing to decide, the reason."""
        return str(self.verdict.detail.get("rule") or self.verdict.reason)

    def to_row(self) -> dict[str, Any]:
        """The columns of the contract for verdict rows, then group and label where known."""
        sample = self.recorded.sample
        found = {"id": sample.id, "k": sample.k} | self.verdict.to_row()
        if self.recorded.group:
            found["group"] = self.recorded.group
        if self.recorded.label is not None:
            found["label"] = self.recorded.label
        return found

    def to_disagreement(self) -> dict[str, Any]:
        """The verdict row with what it takes to judge between the two."""
        sample = self.recorded.sample
        own = {"kind": self.kind, "rule": self.verdict.detail.get("rule")}
        if self.other is not None:
            own["other"] = self.other.to_row()
        return self.to_row() | own | {"problem": sample.problem, "completion": sample.completion}


def disagreements(rows: Sequence[MarkedRow]) -> list[MarkedRow]:
    """The rows in which label and verdict differ, by kind and by rule, then as they stand."""
    found = [row for row in rows if row.kind]
    return sorted(found, key=lambda row: (KINDS.index(row.kind), row.rule))


def square(rows: Sequence[MarkedRow]) -> Square:
    """The 2 x 2 table; a third line where we gave no score. Empty where there are no labels."""
    counts = Counter((row.verdict.correct, row.recorded.label) for row in rows)
    if all(label is None for _, label in counts):
        return []
    lines = [(WORDS[ours], counts[ours, True], counts[ours, False]) for ours in WORDS]
    return [line for line in lines if line[0] != "no verdict" or line[1] or line[2]]


def statuses(rows: Sequence[MarkedRow]) -> list[dict[str, Any]]:
    """How many rows have each status and reason, the most frequent first within a status."""
    counts = Counter((row.verdict.status.value, str(row.verdict.reason)) for row in rows)
    order = ("ok", "abstain", "error")
    found = sorted(counts.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0][1]))
    return [{"status": s, "reason": reason, "rows": number} for (s, reason), number in found]
