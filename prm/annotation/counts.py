"""What an annotation costs, before and after, and what a loop that shares nothing would cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Cost", "Counts"]


class Cost(NamedTuple):
    """Roll-outs and tokens."""

    rollouts: int
    generated: int
    """Tokens sampled."""
    prefilled: int
    """Tokens of prompts and prefixes read."""

    @property
    def tokens(self) -> int:
        """Sampled and read together."""
        return self.generated + self.prefilled

    def __add__(self, other: object) -> Cost:
        """Both together."""
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Cost(0, 0, 0)


@dataclass(slots=True)
class Counts:
    """What was annotated, and what it took."""

    solutions: int = 0
    """Labelled."""
    labels: Counter[str] = field(default_factory=Counter[str])
    """Steps by label: ``right`` (1), ``wrong`` (0), ``between`` (soft), ``masked`` (none)."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Solutions that were not labelled, by reason."""
    spent: Cost = NOTHING
    """Roll-outs behind the labels and their tokens, those that an earlier process drew included;
    ``prefilled`` counts this process only."""
    alone: Cost = NOTHING
    """Of the naive loop: the prefixes that were drawn, and what it reads."""
    undrawn: int = 0
    """Of the naive loop: roll-outs from prefixes that were not drawn at all."""

    @property
    def naive(self) -> Cost:
        """What a loop would take that shares nothing and stops nothing early.

        It sends every prefix of every solution by itself, ``rollouts`` times, each with its own
        prefill. Roll-outs that were not drawn count with the mean length of those that were.
        """
        mean = self.spent.generated / max(self.spent.rollouts, 1)
        return self.alone + Cost(self.undrawn, round(self.undrawn * mean), 0)

    @property
    def ratio(self) -> float | None:
        """Tokens of the naive loop over those spent; None before any was spent."""
        return self.naive.tokens / self.spent.tokens if self.spent.tokens else None

    def to_row(self) -> dict[str, Any]:
        """The numbers in plain values."""
        ratio = self.ratio
        return {
            "solutions": self.solutions,
            "labels": dict(sorted(self.labels.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "spent": self.spent._asdict(),
            "naive": self.naive._asdict(),
            "ratio": None if ratio is None else round(ratio, 3),
        }
