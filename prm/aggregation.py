"""One number for a solution from the scores of its steps: pure functions, by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from stepmark.errors import DataError, UnknownNameError

__all__ = ["AGGREGATIONS", "Aggregation", "aggregate", "rank_of"]

Aggregation = Callable[[Sequence[float]], float]


def product(scores: Sequence[float]) -> float:
    """The product; of hundreds of small scores it may be 0, where `rank_of` still tells them."""
    return math.exp(_sum_of_logs(scores))


def geometric(scores: Sequence[float]) -> float:
    """The geometric mean: the product without its liking for short solutions."""
    return math.exp(_sum_of_logs(scores) / len(scores))


def mean(scores: Sequence[float]) -> float:
    """The mean."""
    return math.fsum(scores) / len(scores)


def last(scores: Sequence[float]) -> float:
    """The score of the last step."""
    return scores[-1]


def _sum_of_logs(scores: Sequence[float]) -> float:
    if any(score == 0 for score in scores):
        return -math.inf
    return math.fsum(map(math.log, scores))


AGGREGATIONS: dict[str, Aggregation] = {
    "min": min,
    "prod": product,
    "mean": mean,
    "last": last,
    "geometric": geometric,
    "max": max,
}
"""The known aggregations by name."""


def aggregate(scores: Sequence[float | None], how: str) -> float | None:
    """The score of a solution; None where it cannot be told.

    A solution with a step that has no score has none itself, whatever the aggregation: what stands
    in that step is not known, and a solution must not gain by being too long for its scorer.

    Args:
        scores: one per step, in [0, 1]; None for a step without a score.
        how: a name in `AGGREGATIONS`.

    Raises:
        UnknownNameError: there is no such aggregation.
        DataError: there are no steps, or a score lies outside [0, 1].

    >>> [aggregate(scores, "min") for scores in ((0.9, 0.4, 0.8), (0.9, None))]
    [0.4, None]
    """
    if how not in AGGREGATIONS:
        raise UnknownNameError.of("aggregation", how, AGGREGATIONS)
    if not scores:
        raise DataError(
            "A solution without steps has no score. Leave it out, or divide its text into steps."
        )
    known = [score for score in scores if score is not None]
    if bad := [score for score in known if not 0 <= score <= 1]:
        raise DataError(
            f"A step has the score {bad[0]!r}; scores lie in [0, 1], or are None. Mend the scorer."
        )
    return AGGREGATIONS[how](known) if len(known) == len(scores) else None


def rank_of(scores: Sequence[float | None], how: str) -> float | None:
    """A number that orders solutions as `aggregate` would in exact arithmetic.

    It is the aggregated score, but for ``prod`` its logarithm: products of many small scores are
    too small for a float, and would tie at 0.

    Args:
        scores: as for `aggregate`.
        how: as for `aggregate`.

    Raises:
        UnknownNameError: there is no such aggregation.
        DataError: there are no steps, or a score lies outside [0, 1].

    >>> [rank_of([score] * 200, "prod") > rank_of([0.01] * 200, "prod") for score in (0.01, 0.02)]
    [False, True]
    """
    total = aggregate(scores, how)
    if total is None or how != "prod":
        return total
    least = -sys.float_info.max  # finite: a product of 0 is still more than no score
    return max(least, _sum_of_logs([score for score in scores if score is not None]))
