"""Which completions of a problem have the same result, as their verifier sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from stepmark.protocols import OutcomeVerifier
from stepmark.types import Item, Reason, Verdict
from stepmark.verifiers import extract

__all__ = ["Marked", "answer_classes"]

Marked = tuple[Item, Verdict]
"""A completion with what the verifier said of it."""
CUT = "..."
"""Ends a result that a verdict shows shortened."""


class Pair(NamedTuple):
    """Two wrong results of a problem that are to be compared."""

    problem: int
    gold: str
    other: str
    item: Item


def answer_classes(
    verifier: OutcomeVerifier, problems: Sequence[Sequence[Marked]]
) -> list[list[str | None]]:
    """Of every completion, a name for its result: the same for results that are equal.

    All that were marked right are equal to the gold, so to one another. Of those that were not, two
    are equal when the verifier marks the one right with the other's result as its gold; each pair
    of different texts is asked once, the first in alphabetical order as the gold, and what is equal
    to one of a class belongs to it. So neither spelling nor order matters.

    A result is what the verdict extracted. A verifier that extracts nothing, such as a function of
    your own, has the results that `stepmark.verifiers.extract` finds. A completion without a result
    or without a score (abstain, error) has no class: it casts no vote.

    Args:
        verifier: the one that made the verdicts.
        problems: the completions of each problem.

    Returns:
        Names in the order of the completions; a name is one of the texts of its class.
    """
    results = [[_result(*one) for one in row] for row in problems]
    classes = [_Classes() for _ in problems]
    pairs = [
        pair
        for place, row in enumerate(problems)
        for pair in _prepared(classes[place], place, row, results[place])
    ]
    if pairs:
        verdicts = verifier([pair.item for pair in pairs])
        for pair, verdict in zip(pairs, verdicts, strict=True):
            if verdict.correct:
                classes[pair.problem].join(pair.gold, pair.other)
    return [
        [None if name is None else classes[place].of(name) for name in row]
        for place, row in enumerate(results)
    ]


def _result(item: Item, verdict: Verdict) -> str | None:
    if verdict.score is None or verdict.reason == Reason.NO_ANSWER:
        return None
    text = verdict.extracted
    if text is None or text.endswith(CUT):
        text = extract(item.completion).text
    if text is None and verdict.correct:
        return item.problem.gold
    return text.strip() if text is not None else None


class _Classes:
    """Texts that were found equal, as sets that grow together."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}

    def of(self, name: str) -> str:
        while (parent := self.parents.get(name, name)) != name:
            name = parent
        return name

    def join(self, one: str, two: str) -> None:
        first, second = sorted((self.of(one), self.of(two)))
        self.parents[second] = first


def _prepared(
    classes: _Classes, place: int, row: Sequence[Marked], results: Sequence[str | None]
) -> Iterator[Pair]:
    """The right results as one class; what must be asked of the others."""
    right: list[str] = []
    wrong: dict[str, Item] = {}
    for (item, verdict), name in zip(row, results, strict=True):
        if name is None:
            continue
        if verdict.correct:
            right.append(name)
        else:
            wrong.setdefault(name, item)
    for name in right[1:]:
        classes.join(right[0], name)
    for name in right:
        wrong.pop(name, None)  # one text, marked by more than its result: a format, a length
    for gold, other in combinations(sorted(wrong), 2):
        item = wrong[other]
        problem = replace(item.problem, gold=gold, solution=None)
        yield Pair(place, gold, other, replace(item, problem=problem))
