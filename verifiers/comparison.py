"""What a comparison of two trees says: equal, different, or open, and the rule that said so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .tree import Node

__all__ = ["Compare", "Comparison", "every", "no", "yes"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Equal, different, or open: then all the pairs must be proved equal by sympy."""

    equal: bool | None
    rule: str
    pairs: tuple[tuple[Node, Node], ...] = ()

    def __bool__(self) -> bool:
        raise TypeError("A comparison can be open: read .equal.")


Compare = Callable[[Node, Node], Comparison]
"""How the parts of a structure are compared."""


@lru_cache(maxsize=256)
def yes(rule: str) -> Comparison:
    """Equal by a rule."""
    return Comparison(True, rule)


@lru_cache(maxsize=256)
def no(rule: str) -> Comparison:
    """Different by a rule."""
    return Comparison(False, rule)


def every(parts: Sequence[Comparison], rule: str) -> Comparison:
    """Equal when all parts are."""
    if any(part.equal is False for part in parts):
        return no(rule)
    pairs = tuple(pair for part in parts for pair in part.pairs)
    return Comparison(None, rule, pairs) if pairs else yes(rule)
