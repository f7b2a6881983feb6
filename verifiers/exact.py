"""The verifier `exact`: the extracted answer is the gold, as text."""

from __future__ import annotations

from collections.abc import Sequence

from stepmark.types import Item, Reason, Verdict

from .extract import extract, extract_gold
from .reading import fold, text_key

__all__ = ["ExactVerifier", "exact"]


class ExactVerifier:
    """Marks completions by normalised text: spacing, dollars and letter case of words do not count.

    Args:
        strict: accept answers in a box or after ``####`` only.
    """

    name = "exact"
    version = 1

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    @property
    def key(self) -> str:
        """``exact@1``, or ``exact@1-strict``."""
        return f"{self.name}@{self.version}" + ("-strict" if self.strict else "")

    @property
    def columns(self) -> frozenset[str]:
        """None: the gold is enough."""
        return frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item."""
        return [self._mark(item) for item in items]

    def _mark(self, item: Item) -> Verdict:
        gold = extract_gold(item.problem.gold).text if item.problem.gold else None
        if gold is None:
            return Verdict.abstained(Reason.GOLD_MISSING)
        found = extract(item.completion, strict=self.strict)
        if found.text is None:
            return Verdict.marked(0, Reason.NO_ANSWER, gold=gold, method=found.method)
        same = text_key(found.text) == text_key(gold) or _words(found.text) == _words(gold)
        reason = Reason.EQUAL if same else Reason.DIFFERENT
        return Verdict.marked(
            float(same), reason, extracted=found.text, gold=gold, method=found.method
        )


def _words(text: str) -> str:
    return text_key(fold(text))


def exact(strict: bool = False) -> ExactVerifier:
    """The verifier that the name ``exact`` stands for."""
    return ExactVerifier(strict)
