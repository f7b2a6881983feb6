"""Accuracy against the number of samples: what more samples of a problem buy, and how."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepmark.errors import ConfigError, UnknownNameError

from .at_k import best_at_k, mean_at_k, pass_at_k
from .intervals import Interval
from .voting import Expected, vote_at_k

__all__ = ["METHODS", "CurvePoint", "Drawn", "accuracy_curve", "doublings", "expected_at_k"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The samples of one problem, and what they are chosen by."""

    right: Sequence[float]
    """Per sample, 1.0 where it is right and 0.0 where it is not."""
    ranks: Sequence[float | None] = ()
    """Per sample, what the best is chosen by; None stands below all others."""
    classes: Sequence[Hashable | None] = ()
    """Per sample, the class of its result, or None where it has none."""
    weights: Sequence[float | None] = ()
    """Per sample, what its vote counts, at least 0."""


class CurvePoint(NamedTuple):
    """One number of samples."""

    k: int
    mean: float
    interval: Interval
    """95 %, over problems."""
    se: float | None = None
    """Standard error over problems; None for one problem."""
    draws: int = 0
    """Subsets that were drawn of a problem where not all could be counted; 0: exact."""


def _mean(drawn: Drawn, k: int) -> Expected:
    return Expected(sum(drawn.right) / len(drawn.right))


def _pass(drawn: Drawn, k: int) -> Expected:
    return Expected(pass_at_k(len(drawn.right), round(sum(drawn.right)), k))


def _best(drawn: Drawn, k: int) -> Expected:
    return Expected(best_at_k(drawn.right, drawn.ranks, k))


def _majority(drawn: Drawn, k: int) -> Expected:
    return vote_at_k(drawn.classes, drawn.right, k)


def _weighted(drawn: Drawn, k: int) -> Expected:
    return vote_at_k(drawn.classes, drawn.right, k, drawn.weights)


METHODS: Mapping[str, Callable[[Drawn, int], Expected]] = {
    "mean": _mean,
    "pass": _pass,
    "best": _best,
    "majority": _majority,
    "weighted": _weighted,
}
"""What may be done with k samples: take any, ask whether one is right, take the best by rank, vote,
vote by weight."""


def expected_at_k(drawn: Drawn, method: str, k: int) -> Expected:
    """What a method reaches with k of the samples, over all subsets of k.

    Raises:
        UnknownNameError: there is no such method.
        ConfigError: k is larger than the number of samples, or what the method needs is missing.

    >>> expected_at_k(Drawn([1, 0], ranks=[0.9, 0.1]), "best", 2)
    Expected(value=1.0, draws=0)
    """
    if method not in METHODS:
        raise UnknownNameError.of("method", method, METHODS)
    return METHODS[method](drawn, k)


def doublings(n: int) -> tuple[int, ...]:
    """1, 2, 4 and so on up to n, and n itself.

    >>> doublings(12)
    (1, 2, 4, 8, 12)
    """
    sizes = [2**power for power in range(n.bit_length()) if 2**power < n]
    return (*sizes, n)


def accuracy_curve(
    problems: Sequence[Drawn], method: str, sizes: Sequence[int] | None = None
) -> tuple[CurvePoint, ...]:
    """The accuracy of a method at each number of samples, with its interval over problems.

    Every point is the mean over problems of the exact expectation over subsets (`expected_at_k`);
    the interval is that of `stepmark.statistics.mean_at_k`, one number a problem.

    Args:
        problems: the samples of each problem.
        method: a name in `METHODS`.
        sizes: numbers of samples; by default doublings up to what every problem has.

    Raises:
        UnknownNameError: there is no such method.
        ConfigError: no problems, or a size that some problem does not have.

    >>> rows = [Drawn([1, 0, 1, 1]), Drawn([0, 0, 0, 1])]
    >>> [(point.k, point.mean) for point in accuracy_curve(rows, "pass")]
    [(1, 0.5), (2, 0.75), (4, 1.0)]
    """
    if not problems:
        raise ConfigError("A curve needs at least one problem. Give the samples of some.")
    points: list[CurvePoint] = []
    for k in sizes or doublings(min(len(drawn.right) for drawn in problems)):
        found = [expected_at_k(drawn, method, k) for drawn in problems]
        whole = mean_at_k([[min(1.0, max(0.0, one.value))] for one in found])
        draws = max(one.draws for one in found)
        se = whole.se if len(problems) > 1 else None
        points.append(CurvePoint(k, whole.mean, whole.interval, se, draws))
    return tuple(points)
