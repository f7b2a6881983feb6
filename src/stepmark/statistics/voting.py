"""Votes among the samples of one problem: by majority or weighted; exact where it can be.

A *class* is the samples whose results are equal to the verifier. The class with the most votes is
taken; of classes that tie, the mean; a sample without a result does not vote, and where none votes
the score is 0 (Wang et al., arXiv:2203.11171).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from stepmark.errors import ConfigError
from stepmark.seeds import derive_seed

__all__ = ["Expected", "vote_at_k"]

MOST_SUBSETS = 20_000
"""Subsets that are counted one by one; of more, some are drawn."""
MOST_WORK = 2_000_000
"""Additions that counting classes may take."""
TIED = 1e-9
"""Relative difference of two sums of weights below which they tie: more than rounding can make."""


class Expected(NamedTuple):
    """A mean over subsets of samples."""

    value: float
    draws: int = 0
    """Subsets that it was drawn from; 0: exact, the mean over all of them."""


class Ballot(NamedTuple):
    """The samples of one class."""

    score: float
    """Mean score of its samples; they are equal where a verifier marks results alone."""
    weights: tuple[float, ...]


def vote_at_k(
    classes: Sequence[Hashable | None],
    scores: Sequence[float],
    k: int,
    weights: Sequence[float | None] | None = None,
    *,
    draws: int = 2000,
    seed: int = 0,
) -> Expected:
    r"""Expected score of the class that k of n drawn samples vote for, over all subsets of k.

    Without weights every sample counts once, and the expectation is counted by classes. With
    :math:`c_i` samples in class i, the subsets in which the classes of a set T tie at t votes are

    .. math:: [x^k] \prod_{i \in T} \binom{c_i}{t} x^t
        \prod_{i \notin T} \sum_{s < t} \binom{c_i}{s} x^s \; (1 + x)^{\text{silent}}

    With weights the sums of a class depend on which of its samples are drawn: all subsets are
    looked at where there are at most 20,000 of them. Beyond these bounds ``draws`` subsets are
    drawn. Neither way depends on the order of the samples.

    Args:
        classes: per sample, the class of its result, or None.
        scores: per sample, its score; a class has the mean of its samples' scores.
        k: samples that vote, at most n.
        weights: per sample, what its vote counts, at least 0; None counts nothing.
        draws: subsets where not all can be counted.
        seed: of those draws.

    Raises:
        ConfigError: not 1 <= k <= n, other than one class, score and weight per sample, or a
            negative weight.

    >>> vote_at_k(["18", "17", "18", None], [1, 0, 1, 0], 4)
    Expected(value=1.0, draws=0)
    >>> vote_at_k(["18", "17"], [1, 0], 2, [0.3, 0.9])
    Expected(value=0.0, draws=0)
    """
    _check(classes, scores, k, weights)
    ballots = _ballots(classes, scores, weights or [1.0] * len(classes))
    silent = sum(name is None for name in classes)
    if not ballots:
        return Expected(0.0)
    if not silent and len({one.score for one in ballots}) == 1:
        return Expected(float(ballots[0].score))
    if weights is None and _work(ballots, len(classes)) <= MOST_WORK:
        return Expected(_counted(ballots, silent, k))
    voters = [(at, weight) for at, one in enumerate(ballots) for weight in one.weights]
    voters += [(-1, 0.0)] * silent
    if math.comb(len(voters), k) <= MOST_SUBSETS:
        return Expected(_mean(_elected(ballots, some) for some in combinations(voters, k)))
    rng = random.Random(derive_seed(seed, "vote", len(voters), k))
    return Expected(_mean(_elected(ballots, rng.sample(voters, k)) for _ in range(draws)), draws)


def _check(
    classes: Sequence[Hashable | None],
    scores: Sequence[float],
    k: int,
    weights: Sequence[float | None] | None,
) -> None:
    n = len(classes)
    if len(scores) != n or (weights is not None and len(weights) != n):
        given = f" and {len(weights)} weights" if weights is not None else ""
        raise ConfigError(f"{n} classes for {len(scores)} scores{given}; give one each.")
    if not 1 <= k <= n:
        raise ConfigError(
            f"A vote of {k} cannot be told from {n} samples of a problem: k must lie between 1 "
            "and n. Draw more samples, or ask for a smaller k."
        )
    for weight in weights or ():
        if weight is not None and not 0 <= weight < math.inf:
            raise ConfigError(
                f"A vote has the weight {weight}; a weight is a number of at least 0. Bring the "
                "scores into [0, 1] first, by a sigmoid for example."
            )


def _ballots(
    classes: Sequence[Hashable | None], scores: Sequence[float], weights: Sequence[float | None]
) -> list[Ballot]:
    """The classes, in an order that does not depend on that of the samples."""
    members: dict[Hashable, list[int]] = {}
    for at, name in enumerate(classes):
        if name is not None:
            members.setdefault(name, []).append(at)
    return sorted(
        Ballot(
            _mean(scores[at] for at in places),
            tuple(sorted(weights[at] or 0.0 for at in places)),
        )
        for places in members.values()
    )


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known)


def _work(ballots: Sequence[Ballot], n: int) -> int:
    """Additions of `_counted`, at most."""
    sizes = [len(one.weights) for one in ballots]
    reach = (sum(size >= votes for size in sizes) for votes in range(1, max(sizes) + 1))
    return sum(n * most * most * votes for votes, most in enumerate(reach, 1))


def _counted(ballots: Sequence[Ballot], silent: int, k: int) -> float:
    """By the number of votes that win: only the classes that can have as many are told apart."""
    total = 0.0
    for votes in range(1, max(len(one.weights) for one in ballots) + 1):
        able = [one for one in ballots if len(one.weights) >= votes]
        free = silent + sum(len(one.weights) for one in ballots if len(one.weights) < votes)
        for (used, tied), score in _ties(able, votes, k).items():
            if tied and 0 <= k - used <= free:
                total += score / tied * math.comb(free, k - used)
    return total / math.comb(silent + sum(len(one.weights) for one in ballots), k)


def _ties(able: Sequence[Ballot], votes: int, k: int) -> dict[tuple[int, int], float]:
    """(Samples used, classes that tie) -> sum of the scores of those classes, over all ways."""
    ways = Counter({(0, 0): 1})
    sums: dict[tuple[int, int], float] = {(0, 0): 0}
    for one in able:
        size = len(one.weights)
        new_ways: Counter[tuple[int, int]] = Counter()
        new_sums: dict[tuple[int, int], float] = {}
        for (used, tied), number in ways.items():
            for own in range(min(votes, k - used) + 1):
                place = (used + own, tied + (own == votes))
                times = math.comb(size, own)
                new_ways[place] += number * times
                gained = number * _whole(one.score) if own == votes else 0
                more = (sums[used, tied] + gained) * times
                new_sums[place] = new_sums.get(place, 0) + more
        ways, sums = new_ways, new_sums
    return sums


def _whole(score: float) -> float:
    """A whole number as an int, whose sums and products are exact."""
    return int(score) if float(score).is_integer() else score


def _elected(ballots: Sequence[Ballot], voters: Sequence[tuple[int, float]]) -> float:
    """The score of what these voters choose."""
    sums: dict[int, float] = {}
    for at, weight in voters:
        if at >= 0:
            sums[at] = sums.get(at, 0.0) + weight
    if not sums:
        return 0.0
    bound = max(sums.values()) * (1 - TIED)
    return _mean(ballots[at].score for at, weight in sums.items() if weight >= bound)
