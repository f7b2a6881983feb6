"""Verifiers made of verifiers: a weighted sum, all of several, the first that answers.

In Python ``AllOf(["math", "format"])``; in a reference ``all(math, format)``; in a config either
that text or ``{name = "all", of = ["math", "format"]}``. Parts may carry settings and be
combinations themselves: ``first(choice, all(math?units=require, format?one_box=true))``.

Whose fault decides here, too. A score that is missing through the gold or the machine is not
guessed: it makes a sum abstain (or an error). Only where a missing score could not have changed
the result does the result stand: one 0 makes `AllOf` 0, whatever the others would have said.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from stepmark.errors import ConfigError
from stepmark.protocols import OutcomeVerifier
from stepmark.registry import Reference
from stepmark.types import Item, Reason, Status, Verdict

from .loading import load_verifier
from .settings import digest

__all__ = ["AllOf", "FirstOf", "WeightedSum", "weighted_total"]

Part = str | Mapping[str, Any] | Reference | Callable[..., Any] | OutcomeVerifier
"""What `stepmark.verifiers.load_verifier` takes."""
WEIGHTED = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*(\S.*?)\s*")


def weighted_total(terms: Iterable[tuple[float, float | None]]) -> float | None:
    """The sum of weight times score, unitless; None when a score that has a weight is missing.

    >>> weighted_total([(1.0, 0.5), (0.0, None)]), weighted_total([(1.0, None)])
    (0.5, None)
    """
    total = 0.0
    for weight, score in terms:
        if weight == 0:
            continue
        if score is None:
            return None
        total += weight * score
    return total


class Combined:
    """What the combinations share: parts, a key made of theirs, and a verdict made of theirs."""

    name: ClassVar[str]
    version: ClassVar[int]

    def __init__(self, of: Iterable[Part]) -> None:
        self.parts = tuple(load_verifier(part) for part in of)
        keys = [part.key for part in self.parts]
        if not keys:
            raise ConfigError(
                f"The verifier {self.name!r} has no parts. Write them in brackets, such as "
                f'{self.name}(math, format), or {{name = "{self.name}", of = ["math", "format"]}}.'
            )
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise ConfigError(
                f"The verifier {self.name!r} has the part {twice} twice, with the same settings. "
                "Keep one of them."
            )

    @property
    def key(self) -> str:
        """The names of the parts, the version, and a digest of the parts' keys and weights."""
        names = "-".join(part.key.partition("@")[0] for part in self.parts)
        return f"{self.name}-{names[:60]}@{self.version}-{digest(self._identity())}"

    @property
    def columns(self) -> frozenset[str]:
        """All columns that a part cannot do without."""
        return frozenset().union(*(part.columns for part in self.parts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(part.key for part in self.parts)})"

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; nothing is raised."""
        columns = [marked(part, items) for part in self.parts]
        return [self.verdict(list(row)) for row in zip(*columns, strict=True)]

    def verdict(self, verdicts: Sequence[Verdict]) -> Verdict:
        """One verdict of those of the parts, in their order."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it combines.")

    def _identity(self) -> Any:
        return [part.key for part in self.parts]

    def _scored(self, score: float, verdicts: Sequence[Verdict], by: int) -> Verdict:
        """A verdict with a score, in the words of the part that decided."""
        return self._told(score, Status.OK, verdicts, by)

    def _missing(self, verdicts: Sequence[Verdict], counted: Sequence[int]) -> Verdict:
        """The verdict without a score, of the first part that has an error, else of the first."""
        without = [index for index in counted if verdicts[index].score is None]
        errors = [index for index in without if verdicts[index].status is Status.ERROR]
        by = (errors or without)[0]
        return self._told(None, verdicts[by].status, verdicts, by)

    def _told(
        self, score: float | None, status: Status, verdicts: Sequence[Verdict], by: int
    ) -> Verdict:
        parts = {
            part.key: {"score": v.score, "status": v.status.value, "reason": str(v.reason)}
            for part, v in zip(self.parts, verdicts, strict=False)  # parts not asked are left out
        }
        told = [verdicts[by], *verdicts]  # what the deciding part did not look for, another found
        extracted = next((v.extracted for v in told if v.extracted is not None), None)
        gold = next((v.gold for v in told if v.gold is not None), None)
        detail = {**told[0].detail, "decided_by": self.parts[by].key, "parts": parts}
        return Verdict(score, status, told[0].reason, extracted, gold, detail)


class AllOf(Combined):
    r"""Marks completions by their worst part: full marks where every part gives full marks.

    The score is the smallest of the parts' scores. A part that gives 0 decides, even beside one
    that abstains or fails: no score of the other could have changed it, and a completion must not
    escape a 0 by what cannot be checked. Otherwise a missing score is missing.

    Args:
        of: the parts: references, functions or verifiers.

    Raises:
        ConfigError: no parts, or one of them twice.
        UnknownNameError: a part of an unknown name.

    >>> from stepmark.verifiers import verify
    >>> both = AllOf(["math", "format?one_box=true"])
    >>> verify(r"\boxed{3}? No, it is \boxed{4}.", gold="4", verifier=both).reason
    'many_boxes'
    """

    name: ClassVar[str] = "all"
    version: ClassVar[int] = 1

    def __init__(self, of: Iterable[Part] = ()) -> None:
        super().__init__(of)

    def verdict(self, verdicts: Sequence[Verdict]) -> Verdict:
        """One verdict of those of the parts, in their order."""
        scores = [verdict.score for verdict in verdicts]
        if 0 not in scores and None in scores:
            return self._missing(verdicts, range(len(verdicts)))
        least = min(score for score in scores if score is not None)
        return self._scored(least, verdicts, scores.index(least))


class FirstOf(Combined):
    r"""Marks completions by the first part that gives a score; later ones are not asked.

    A score of 0 is an answer: a completion gets no second chance. What abstains passes the row on,
    so that the gold routes it: letters to ``choice``, the rest to ``math``. What fails passes it on
    as well; its error stays in the detail.

    Args:
        of: the parts in order: references, functions or verifiers.

    Raises:
        ConfigError: no parts, or one of them twice.
        UnknownNameError: a part of an unknown name.

    >>> from stepmark.verifiers import verify
    >>> either = FirstOf(["choice", "math"])
    >>> verify("The answer is B.", gold="B", verifier=either).detail["decided_by"]
    'choice@1'
    >>> verify("The answer is 12.", gold="12", verifier=either).correct
    True
    """

    name: ClassVar[str] = "first"
    version: ClassVar[int] = 1

    def __init__(self, of: Iterable[Part] = ()) -> None:
        super().__init__(of)

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; nothing is raised."""
        seen: list[list[Verdict]] = [[] for _ in items]
        for part in self.parts:
            left = [i for i, row in enumerate(seen) if not row or row[-1].score is None]
            for index, verdict in zip(left, marked(part, [items[i] for i in left]), strict=True):
                seen[index].append(verdict)
        return [self.verdict(row) for row in seen]

    def verdict(self, verdicts: Sequence[Verdict]) -> Verdict:
        """One verdict of those of the parts, in their order; parts not asked are left out."""
        by = next((i for i, verdict in enumerate(verdicts) if verdict.score is not None), None)
        if by is None:
            return self._missing(verdicts, range(len(verdicts)))
        return self._scored(verdicts[by].score or 0.0, verdicts, by)


class WeightedSum(Combined):
    r"""Marks completions by the weighted mean of their parts' scores.

    .. math:: s = \sum_i w_i s_i / \sum_i w_i

    Weights are divided by their sum, because a score lies in [0, 1]: 1 means that every part with a
    weight gives 1. A weight of 0 keeps a part's verdict in the detail and counts nothing. A missing
    score of a part with a weight is missing from the sum: no score. The reason is that of the part
    that costs most. Negative weights belong to ``[reward]`` of a run, whose sum is free.

    Args:
        of: a table from part to weight; or a list of parts, each with its weight in front
            (``"0.9*math"``), beside its name (``{name = "math", weight = 0.9}``), or 1.

    Raises:
        ConfigError: no parts, one of them twice, or weights that are not numbers of 0 or more with
            one above 0.
        UnknownNameError: a part of an unknown name.

    >>> from stepmark.verifiers import verify
    >>> mixed = WeightedSum({"math": 0.9, "format": 0.1})
    >>> verify("The answer is 4.", gold="4", verifier=mixed).score
    0.9
    >>> verify(r"\boxed{4}", gold="4", verifier="sum(0.9*math, 0.1*format)").score
    1.0
    """

    name: ClassVar[str] = "sum"
    version: ClassVar[int] = 1

    def __init__(self, of: Mapping[Any, float] | Iterable[Any] = ()) -> None:
        entries = list(of.items()) if isinstance(of, Mapping) else [_weighted(part) for part in of]
        super().__init__(part for part, _ in entries)
        self.weights = tuple(_weight(weight, part) for part, weight in entries)
        if not any(self.weights):
            raise ConfigError(
                "Every weight of the verifier 'sum' is 0, so that nothing counts. "
                "Give at least one part a weight above 0, such as sum(0.9*math, 0.1*format)."
            )

    def verdict(self, verdicts: Sequence[Verdict]) -> Verdict:
        """One verdict of those of the parts, in their order."""
        rows = list(zip(self.weights, (verdict.score for verdict in verdicts), strict=True))
        counted = [index for index, weight in enumerate(self.weights) if weight]
        total = weighted_total(rows)
        if total is None:
            return self._missing(verdicts, counted)
        costs = [weight * (1 - (score or 0)) if weight else -1.0 for weight, score in rows]
        mean = min(1.0, total / sum(self.weights))
        if max(costs) > 0 and mean == 1:
            mean = math.nextafter(1, 0)  # a cost too small to be seen is no full marks
        return self._scored(mean, verdicts, costs.index(max(costs)))

    def _identity(self) -> Any:
        return [
            [part.key, weight / sum(self.weights)]
            for part, weight in zip(self.parts, self.weights, strict=True)
        ]


def marked(part: OutcomeVerifier, items: Sequence[Item]) -> list[Verdict]:
    """The verdicts of a part; one that breaks its contract makes errors, not an exception."""
    if not items:
        return []
    try:
        verdicts = list(part(items))
        if len(verdicts) != len(items):
            raise ValueError(f"{part.key} gave {len(verdicts)} verdicts for {len(items)} items")
    except Exception as error:  # recorded in the rows' verdicts
        told = {"error": repr(error), "traceback": traceback.format_exc()}
        return [
            Verdict.failed(Reason.VERIFIER_RAISED, gold=item.problem.gold, **told) for item in items
        ]
    return verdicts


def _weighted(part: Any) -> tuple[Any, Any]:
    """A part with its weight, from the three ways to write one."""
    if isinstance(part, str) and (match := WEIGHTED.fullmatch(part)) is not None:
        return match.group(2), float(match.group(1))
    if isinstance(part, Mapping) and "weight" in part:
        return {key: part[key] for key in part if key != "weight"}, part["weight"]
    if isinstance(part, tuple) and len(part) == 2:
        return part[0], part[1]
    return part, 1.0


def _weight(value: Any, part: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ConfigError(
            f"The weight of {part!s:.60} in the verifier 'sum' is {value!r}; it must be a number "
            "of 0 or more. For a penalty take a verifier whose score falls, such as length."
        )
    return float(value)
