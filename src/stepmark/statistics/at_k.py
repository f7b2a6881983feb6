"""Metrics over several samples per problem: mean@k, pass@k, maj@k, best of k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from stepmark.errors import ConfigError

from .intervals import Interval, standard_error, wilson

__all__ = ["MeanAtK", "best_at_k", "maj_at_k", "mean_at_k", "pass_at_k"]


@dataclass(frozen=True, slots=True)
class MeanAtK:
    """The mean over samples and problems, with the samples of one problem as one cluster."""

    mean: float
    se: float
    """Standard error clustered by problem; NaN for fewer than two problems."""
    interval: Interval
    problems: int
    samples: int


def mean_at_k(scores: Sequence[Sequence[float]], level: float = 0.95) -> MeanAtK:
    r"""The mean score, every problem counting once, with a clustered error and interval.

    .. math:: \bar x = \frac1n \sum_i \bar x_i, \quad
        \mathrm{se} = \sqrt{\frac{1}{n (n - 1)} \sum_i (\bar x_i - \bar x)^2}

    Samples of one problem are alike, so that n problems times k samples are fewer than n k
    independent trials (Miller, arXiv:2411.00640, section 2.2). The interval is Wilson's with the
    effective sample size :math:`\bar x (1 - \bar x) / \mathrm{se}_0^2` (Franco et al. 2019, JSSAM
    7, 334-364), ``se_0`` with n in place of n - 1; it is that of `wilson` for one sample each, and
    stays sensible where all samples are right or all are wrong.

    Args:
        scores: per problem, the scores of its samples in [0, 1]; every problem has at least one.
        level: confidence level in (0, 1).

    Raises:
        ConfigError: no problems, a problem without samples, or a score outside [0, 1].

    >>> found = mean_at_k([[1, 0], [1, 1], [0, 0], [1, 0]])
    >>> found.mean, round(found.se, 4), [round(bound, 3) for bound in found.interval]
    (0.5, 0.2041, [0.215, 0.785])
    """
    if not scores or not all(scores):
        raise ConfigError("mean@k needs at least one problem, and of each at least one sample.")
    if not all(0 <= score <= 1 for row in scores for score in row):
        raise ConfigError("mean@k has a score outside [0, 1]; scores are shares of full marks.")
    n, samples = len(scores), sum(map(len, scores))
    means = [math.fsum(row) / len(row) for row in scores]
    mean = math.fsum(means) / n
    variance = math.fsum((value - mean) ** 2 for value in means) / n**2
    if mean in (0, 1):
        effective = float(n)
    else:
        effective = min(samples, mean * (1 - mean) / variance) if variance else float(samples)
    interval = wilson(mean * effective, effective, level)
    return MeanAtK(mean, standard_error(means), interval, n, samples)


def pass_at_k(n: int, correct: int, k: int) -> float:
    r"""Chance that at least one of k samples is right, without bias, from n drawn ones.

    .. math:: 1 - \binom{n - c}{k} \Big/ \binom{n}{k}

    Chen et al. (arXiv:2107.03374), equation 1.

    Args:
        n: samples drawn of the problem.
        correct: how many of them are right.
        k: samples that one may show, at most n.

    Raises:
        ConfigError: not 1 <= k <= n, or not 0 <= correct <= n.

    >>> round(pass_at_k(10, 3, 5), 4)
    0.9167
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise ConfigError(
            f"pass@{k} from {n} samples of which {correct} are right: k must lie between 1 and n, "
            "and the right ones between 0 and n. Draw more samples, or ask for a smaller k."
        )
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def maj_at_k(classes: Sequence[Hashable | None], scores: Sequence[float]) -> float:
    """The score of the most frequent final result among the samples of one problem.

    Results of one class are equal to the verifier. Of classes that tie for the most votes the mean
    is taken, so that the order of samples cannot matter; a sample without a result (None) does not
    vote; when none votes, the score is 0 (Wang et al., arXiv:2203.11171).

    Args:
        classes: per sample, the class of its result, or None.
        scores: per sample, its score; equal within a class.

    >>> maj_at_k(["18", "17", "18", None], [1, 0, 1, 0])
    1.0
    >>> maj_at_k(["18", "17"], [1, 0])
    0.5
    """
    if len(classes) != len(scores):
        raise ConfigError(f"{len(classes)} classes for {len(scores)} scores; give one each.")
    votes = Counter(name for name in classes if name is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    score_of = dict(zip(classes, scores, strict=True))
    tied = [score_of[name] for name, count in votes.items() if count == most]
    return float(math.fsum(tied) / len(tied))


def best_at_k(scores: Sequence[float], ranks: Sequence[float | None], k: int) -> float:
    r"""Expected score of the highest ranked of k samples, from n drawn ones, over all subsets.

    Of samples in ascending rank, the i-th leads a subset of k with the probability

    .. math:: \binom{i - 1}{k - 1} \Big/ \binom{n}{k}

    Exact, no subset is drawn. Samples that tie share what they lead together, so that the order of
    samples cannot matter. A sample without a rank stands below all others.

    Args:
        scores: per sample, its score by the verifier.
        ranks: per sample, what it is chosen by, such as the aggregated score of a reward model.
        k: samples of which one is chosen, at most n.

    Raises:
        ConfigError: not 1 <= k <= n, or not one rank per sample.

    >>> best_at_k([1, 0, 0], [0.9, 0.5, 0.1], 2)
    0.6666666666666666
    >>> best_at_k([1, 0], [0.5, 0.5], 2)
    0.5
    """
    n = len(scores)
    if len(ranks) != n:
        raise ConfigError(f"{len(ranks)} ranks for {n} scores; give one each.")
    if not 1 <= k <= n:
        raise ConfigError(
            f"The best of {k} cannot be told from {n} samples of a problem: k must lie between 1 "
            "and n. Draw more samples, or ask for a smaller k."
        )
    tied: dict[float, list[float]] = {}
    for score, rank in zip(scores, ranks, strict=True):
        tied.setdefault(-math.inf if rank is None else rank, []).append(score)
    below, total = 0, 0.0
    for rank in sorted(tied):
        alike = tied[rank]
        leads = math.comb(below + len(alike), k) - math.comb(below, k)
        total += leads * math.fsum(alike) / len(alike)
        below += len(alike)
    return total / math.comb(n, k)
