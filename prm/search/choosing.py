"""One of several completions: the best by its score, or one that most of them agree with.

These choose; what to expect of choosing among k of n is in `stepmark.statistics`, where ties share.
Here the first one of those that tie is taken.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from stepmark.errors import DataError
from stepmark.prm.aggregation import rank_of

__all__ = ["best_of_n", "majority", "weighted_majority"]


def best_of_n(scores: Sequence[Sequence[float | None]], how: str) -> int:
    """Which completion has the best score; one with a step without a score stands below all others.

    Args:
        scores: of each completion, the scores of its steps.
        how: the aggregation, see `stepmark.prm.AGGREGATIONS`.

    Raises:
        DataError: there are no completions, one has no steps, or a score lies outside [0, 1].
        UnknownNameError: there is no such aggregation.

    >>> best_of_n([[0.9, 0.2], [0.5, 0.6]], "min"), best_of_n([[0.9, 0.2], [0.5, 0.6]], "max")
    (1, 0)
    """
    if not scores:
        raise DataError("There are no completions to choose from. Give at least one.")
    ranks = [rank_of(row, how) for row in scores]
    known = [-math.inf if rank is None else rank for rank in ranks]
    return known.index(max(known))


def majority(classes: Sequence[Hashable | None]) -> int | None:
    """The first completion whose result most completions agree on; None where none has a result.

    Args:
        classes: of each completion the class of its result, see `answer_classes`, or None.

    >>> majority(["7", None, "8", "8"]), majority([None])
    (2, None)
    """
    return weighted_majority(classes, [1.0] * len(classes))


def weighted_majority(
    classes: Sequence[Hashable | None], weights: Sequence[float | None]
) -> int | None:
    """The first completion of the class whose weights have the largest sum.

    Args:
        classes: as for `majority`.
        weights: of each completion, such as its aggregated score, at least 0; None counts nothing.

    Raises:
        DataError: there is not one weight per completion, or one is below 0.

    >>> weighted_majority(["7", "8", "8"], [0.9, 0.2, 0.3])
    0
    """
    if len(classes) != len(weights):
        raise DataError(f"{len(classes)} classes for {len(weights)} weights; give one each.")
    if bad := [weight for weight in weights if weight is not None and not 0 <= weight < math.inf]:
        raise DataError(f"A completion has the weight {bad[0]}; weights are at least 0. Change it.")
    votes: dict[Hashable, list[float]] = {}
    for name, weight in zip(classes, weights, strict=True):
        if name is not None:
            votes.setdefault(name, []).append(weight or 0.0)
    if not votes:
        return None
    chosen = max(votes, key=lambda name: math.fsum(votes[name]))
    return list(classes).index(chosen)
