"""How far a measured share may lie from the true one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from stepmark.errors import ConfigError

from .student import t_quantile

__all__ = ["Interval", "mean_interval", "wilson"]


class Interval(NamedTuple):
    """Lower and upper bound of a confidence interval."""

    low: float
    high: float


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    r"""Score interval of a share: sensible at 0 of n and for small n, never outside [0, 1].

    .. math:: \frac{\hat p + z^2/2n \pm z\sqrt{\hat p (1 - \hat p)/n + z^2/4n^2}}{1 + z^2/n}

    Wilson (1927), JASA 22, 209-212. Nothing measured (``n`` = 0) gives [0, 1].

    Args:
        successes: how many of the n; need not be whole when n is an effective sample size.
        n: trials.
        level: confidence level in (0, 1).

    Raises:
        ConfigError: not 0 <= successes <= n, or a level outside (0, 1).

    >>> low, high = wilson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    check_level(level)
    if not 0 <= successes <= n:
        raise ConfigError(f"{successes} successes in {n} trials; they must lie between 0 and n.")
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, shrink = successes / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return Interval(low, high)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    r"""Interval of a mean of independent values: :math:`\bar x \pm t_{n-1} s / \sqrt n`.

    Fewer than two values say nothing of their spread: the interval is without bounds.

    >>> low, high = mean_interval([0.0, 1.0, 1.0, 1.0])
    >>> round(low, 4), round(high, 4)
    (-0.0456, 1.5456)
    """
    check_level(level)
    if len(values) < 2:
        return Interval(-math.inf, math.inf)
    middle = math.fsum(values) / len(values)
    half = t_quantile(level, len(values) - 1) * standard_error(values)
    return Interval(middle - half, middle + half)


def standard_error(values: Sequence[float]) -> float:
    r"""Standard error of the mean, :math:`s / \sqrt n` with the sample deviation (n - 1).

    >>> round(standard_error([0.0, 1.0, 1.0, 1.0]), 4)
    0.25
    """
    n = len(values)
    if n < 2:
        return math.nan
    middle = math.fsum(values) / n
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (n - 1) / n)


def check_level(level: float) -> None:
    """Refuse a confidence level that is none.

    Raises:
        ConfigError: the level does not lie in (0, 1).
    """
    if not 0 < level < 1:
        raise ConfigError(f"The confidence level is {level}; it lies in (0, 1). Usual is 0.95.")
