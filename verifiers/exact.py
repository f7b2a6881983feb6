"""The verifier `exact`: the extracted answer is the gold, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepmark.types import Item, Reason, Verdict

from .extract import extract
from .folding import fold, text_key
from .policy import STRICT, Policy
from .settings import PolicyName
from .shipped import ShippedVerifier, gold_of, shown

__all__ = ["ExactVerifier", "exact"]


@dataclass(frozen=True)
class ExactVerifier(ShippedVerifier):
    r"""Marks completions by text alone: spacing, dollars and the case of words do not count.

    Nothing is read as mathematics: ``0.5`` is not ``1/2``. For golds that are words, codes or
    formulas that must be written as they are.

    Args:
        strict: accept answers in a box or after ``####`` only; short for ``policy="strict"``.
        policy: which extraction rules are allowed: ``lenient``, ``strict``, ``boxed+phrase`` ...

    Raises:
        ConfigError: a setting has a value that is not allowed.

    >>> from stepmark.verifiers import verify
    >>> verify(r"So \boxed{\text{Evelyn}}.", gold="Evelyn", verifier="exact").correct
    True
    >>> verify(r"So \boxed{\frac12}.", gold="0.5", verifier="exact").correct
    False
    """

    name: ClassVar[str] = "exact"
    version: ClassVar[int] = 1

    strict: bool = False
    policy: PolicyName = "lenient"

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        gold = gold_of(item)
        if gold is None or gold.text is None:
            return Verdict.abstained(Reason.GOLD_MISSING)
        allowed = STRICT if self.strict else Policy.of(self.policy)
        found = extract(item.completion, policy=allowed)
        if found.text is None:
            return Verdict.marked(0, Reason.NO_ANSWER, gold=gold.text, method=found.method)
        same = text_key(found.text) == text_key(gold.text) or _words(found.text) == _words(
            gold.text
        )
        return Verdict.marked(
            float(same),
            Reason.EQUAL if same else Reason.DIFFERENT,
            extracted=shown(found.text),
            gold=gold.text,
            method=found.method,
            rule="text",
        )


def _words(text: str) -> str:
    return text_key(fold(text))


def exact(strict: bool = False, policy: str = "lenient") -> ExactVerifier:
    """The verifier that the name ``exact`` stands for."""
    return ExactVerifier(strict, policy)
