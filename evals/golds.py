"""A dry run over golds: which of them cannot be compared with, before anything is marked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepmark.protocols import OutcomeVerifier
from stepmark.types import Reason
from stepmark.verifiers import MathVerifier

__all__ = ["BadGold", "GoldCheck", "check_golds"]


class BadGold(NamedTuple):
    """A gold that no answer can be compared with."""

    id: str
    gold: str | None
    reason: str


class GoldCheck(NamedTuple):
    """What the dry run found."""

    seen: int
    """Golds looked at."""
    bad: tuple[BadGold, ...]

    def __str__(self) -> str:
        """One line: how many, and the first ones with their reasons."""
        if not self.bad:
            return f"All {self.seen:,} golds can be read."
        some = "; ".join(f"{one.id}: {_quoted(one.gold)} ({one.reason})" for one in self.bad[:3])
        more = f"; and {len(self.bad) - 3:,} more" if len(self.bad) > 3 else ""
        return (
            f"{len(self.bad):,} of {self.seen:,} golds cannot be read; their completions get no "
            f"verdict unless they repeat them word for word: {some}{more}."
        )


def check_golds(
    verifier: OutcomeVerifier, golds: Iterable[tuple[str, str | None]]
) -> GoldCheck | None:
    """Which golds the verifier cannot read; None where it does not read golds by itself.

    Only ``math`` can be asked without marking; what it read is remembered for the marking.

    Args:
        verifier: what marks.
        golds: id and gold of each problem; one id is looked at once.
    """
    if not isinstance(verifier, MathVerifier):
        return None
    known = dict(golds)
    bad = []
    for id, gold in known.items():
        if gold is None or not gold.strip():
            bad.append(BadGold(id, gold, Reason.GOLD_MISSING.value))
            continue
        found = verifier.prepare(gold)
        if not found.text:
            bad.append(BadGold(id, gold, Reason.GOLD_MISSING.value))
        elif found.node is None:
            bad.append(BadGold(id, gold, found.problem or Reason.GOLD_UNREADABLE.value))
    return GoldCheck(len(known), tuple(bad))


def _quoted(gold: str | None) -> str:
    text = repr(gold)
    return text if len(text) <= 40 else f"{text[:37]}..."
