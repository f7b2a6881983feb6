"""Which score says whether a completion is right."""

from __future__ import annotations

from stepmark.types import Marked

__all__ = ["outcome_score"]


def outcome_score(row: Marked) -> float | None:
    """The score of the first verifier in [0, 1], which also marks the held-out evaluation.

    The reward is another thing: a sum over verifiers, in which a penalty for length may turn a
    right completion into less than full marks. None where that verifier has not said anything.
    """
    first = next(iter(row.verdicts.values()), None)
    return None if first is None else first.score
