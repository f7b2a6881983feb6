"""What a set of labelled steps holds: how many of each label, where errors stand, what repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepmark.types import LabelledSteps

from .rows import row_id

__all__ = ["WORDS", "LabelBalance", "Spread", "has_words", "label_balance", "label_word"]

WORDS = ("right", "wrong", "between", "masked")
"""What labels are counted as."""


class Spread(NamedTuple):
    """Smallest, middle, 95th percentile and largest of some numbers, and their mean."""

    smallest: int
    median: int
    p95: int
    largest: int
    mean: float

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Spread:
        """The spread of one or more numbers; of none, zeros.

        >>> Spread.of([3, 1, 2])
        Spread(smallest=1, median=2, p95=3, largest=3, mean=2.0)
        """
        if not numbers:
            return cls(0, 0, 0, 0, 0.0)
        ordered = sorted(numbers)
        last = len(ordered) - 1
        middle, high = ordered[last // 2], ordered[round(0.95 * last)]
        return cls(ordered[0], middle, high, ordered[-1], sum(ordered) / len(ordered))


@dataclass(slots=True)
class LabelBalance:
    """The counts of a set of labelled solutions."""

    rows: int = 0
    distinct: int = 0
    """Rows that differ in problem or steps."""
    conflicting: int = 0
    """Solutions that stand there with different labels."""
    labels: Counter[str] = field(default_factory=Counter[str])
    """Steps labelled ``right`` (1), ``wrong`` (0), ``between`` (soft) and ``masked``."""
    last_labels: Counter[str] = field(default_factory=Counter[str])
    """The same of the last step of every row: what training on the last step only sees."""
    by_position: list[Counter[str]] = field(default_factory=list[Counter[str]])
    """The same of the first step, the second, and so on."""
    first_errors: Counter[int] = field(default_factory=Counter[int])
    """Rows by the index of the first step labelled 0; -1 for rows that are right throughout."""
    first_error_unknown: int = 0
    """Rows of which the first error cannot be told, because labels are masked."""
    kinds: Counter[str] = field(default_factory=Counter[str])
    origins: Counter[str] = field(default_factory=Counter[str])
    """Rows by who labelled them."""
    sources: Counter[str] = field(default_factory=Counter[str])
    final_correct: Counter[str] = field(default_factory=Counter[str])
    """Rows whose final answer is ``right``, ``wrong`` or ``unknown``."""
    right_answer_with_error: int = 0
    """Rows with a right final answer in which a step is labelled 0."""
    rows_per_problem: Counter[str] = field(default_factory=Counter[str])
    steps_per_row: list[int] = field(default_factory=list[int])
    chars_per_step: list[int] = field(default_factory=list[int])

    @property
    def problems(self) -> int:
        """Different problems."""
        return len(self.rows_per_problem)

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values; long lists as their spread."""
        return {
            "rows": self.rows,
            "distinct": self.distinct,
            "conflicting": self.conflicting,
            "problems": self.problems,
            "rows_per_problem": Spread.of(list(self.rows_per_problem.values()))._asdict(),
            "steps_per_row": Spread.of(self.steps_per_row)._asdict(),
            "chars_per_step": Spread.of(self.chars_per_step)._asdict(),
            "labels": {word: self.labels[word] for word in WORDS},
            "last_labels": {word: self.last_labels[word] for word in WORDS},
            "by_position": [{word: one[word] for word in WORDS} for one in self.by_position],
            "first_errors": {str(at): n for at, n in sorted(self.first_errors.items())},
            "first_error_unknown": self.first_error_unknown,
            "kinds": dict(self.kinds),
            "origins": dict(self.origins),
            "sources": dict(self.sources),
            "final_correct": dict(self.final_correct),
            "right_answer_with_error": self.right_answer_with_error,
        }


def label_balance(rows: Iterable[LabelledSteps]) -> LabelBalance:
    """The counts of all rows, read once.

    >>> from stepmark import Problem
    >>> problem = Problem("p", "1 + 1?", "2")
    >>> found = label_balance([LabelledSteps(problem, ("1 + 1 = 3", "answer: 3"), (0, None))])
    >>> found.labels["wrong"], found.labels["masked"], dict(found.first_errors)
    (1, 1, {0: 1})
    """
    found = LabelBalance()
    seen: dict[str, set[int]] = {}
    for row in rows:
        _add(found, row)
        seen.setdefault(row_id(row.problem.text, row.steps), set()).add(hash(row.labels))
    found.distinct = len(seen)
    found.conflicting = sum(len(labels) > 1 for labels in seen.values())
    return found


def has_words(row: LabelledSteps) -> bool:
    """Whether a solution can be scored step by step: it has steps, and none of them is blank."""
    return bool(row.steps) and all(step.strip() for step in row.steps)


def label_word(label: float | None) -> str:
    """What a label is counted as: ``right``, ``wrong``, ``between`` or ``masked``."""
    if label is None:
        return "masked"
    return {0.0: "wrong", 1.0: "right"}.get(label, "between")


def _add(found: LabelBalance, row: LabelledSteps) -> None:
    words = [label_word(label) for label in row.labels]
    found.rows += 1
    found.labels.update(words)
    found.last_labels.update(words[-1:])
    while len(found.by_position) < len(words):
        found.by_position.append(Counter())
    for position, word in zip(found.by_position, words, strict=False):
        position[word] += 1
    if (error := row.first_error) is None:
        found.first_error_unknown += 1
    else:
        found.first_errors[error] += 1
    found.kinds[row.kind] += 1
    found.origins[row.origin or "unknown"] += 1
    found.sources[row.source or "unknown"] += 1
    found.final_correct[{True: "right", False: "wrong", None: "unknown"}[row.final_correct]] += 1
    found.right_answer_with_error += row.final_correct is True and "wrong" in words
    found.rows_per_problem[row.problem.id] += 1
    found.steps_per_row.append(len(row.steps))
    found.chars_per_step.extend(len(step) for step in row.steps)
