"""Two systems on the same problems: what differs, and whether that may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepmark.errors import ConfigError

from .intervals import Interval, check_level, mean_interval, standard_error, wilson
from .student import t_probability

__all__ = ["Paired", "mcnemar_exact", "paired_means", "paired_shares"]


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference of two systems on the same problems, first minus second."""

    difference: float
    interval: Interval
    p: float
    """Two-sided probability of a difference this large when the systems are equal."""


def mcnemar_exact(b: int, c: int) -> float:
    r"""Two-sided p of McNemar's exact test from the two discordant counts.

    .. math:: p = \min\Bigl(1, 2 \sum_{i=0}^{\min(b, c)} \binom{b + c}{i} 2^{-(b + c)}\Bigr)

    McNemar (1947), Psychometrika 12, 153-157, with the binomial distribution in place of its
    approximation. Only problems on which the two differ say anything.

    Args:
        b: problems that only the first solves.
        c: problems that only the second solves.

    >>> round(mcnemar_exact(1, 8), 6)
    0.039062
    >>> mcnemar_exact(0, 0)
    1.0
    """
    if b < 0 or c < 0:
        raise ConfigError(f"Discordant counts are {b} and {c}; they cannot be negative.")
    n, term, total = b + c, 1, 0
    for i in range(min(b, c) + 1):
        total += term
        term = term * (n - i) // (i + 1)
    return min(1.0, 2 * total / 2**n)


def paired_shares(both: int, b: int, c: int, neither: int, level: float = 0.95) -> Paired:
    """Difference of two shares on the same problems, with McNemar's p.

    The interval is Newcombe's (1998, Statistics in Medicine 17, 2635-2650, method 10): Wilson
    intervals of both shares, squared and added with the correlation between them; it has a width
    even where the two systems agree on every problem.

    Args:
        both: problems that both solve.
        b: problems that only the first solves.
        c: problems that only the second solves.
        neither: problems that neither solves.
        level: confidence level in (0, 1).

    Raises:
        ConfigError: no problems, or a level outside (0, 1).

    >>> found = paired_shares(20, 12, 2, 16)
    >>> found.difference, [round(bound, 3) for bound in found.interval]
    (0.2, [0.056, 0.329])
    """
    check_level(level)
    n = both + b + c + neither
    if n == 0:
        raise ConfigError("There are no problems to compare on; at least one is needed.")
    first, second = (both + b) / n, (both + c) / n
    low1, high1 = wilson(both + b, n, level)
    low2, high2 = wilson(both + c, n, level)
    phi = _correlation(both, b, c, neither)
    down = _added(first - low1, high2 - second, phi)
    up = _added(high1 - first, second - low2, phi)
    difference = (b - c) / n
    return Paired(difference, Interval(difference - down, difference + up), mcnemar_exact(b, c))


def paired_means(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Paired:
    r"""Difference of two means over the same problems, by the paired t test.

    .. math:: \bar d \pm t_{n-1} \, s_d / \sqrt n, \quad d_i = x_i - y_i

    With the mean over k samples of each problem as values, the samples of one problem count as one
    cluster (Miller, arXiv:2411.00640, section 4).

    Raises:
        ConfigError: lengths differ, or there are no values.

    >>> found = paired_means([1.0, 0.5, 0.75], [0.5, 0.25, 0.75])
    >>> round(found.difference, 3), round(found.p, 3)
    (0.25, 0.225)
    """
    if len(first) != len(second) or not first:
        raise ConfigError(
            f"{len(first)} values against {len(second)}; give the same problems in the same order."
        )
    differences = [x - y for x, y in zip(first, second, strict=True)]
    difference = math.fsum(differences) / len(differences)
    error = standard_error(differences)
    if math.isnan(error):
        p = math.nan
    elif error == 0:
        p = float(difference == 0)
    else:
        p = t_probability(difference / error, len(differences) - 1)
    return Paired(difference, mean_interval(differences, level), p)


def _correlation(both: int, b: int, c: int, neither: int) -> float:
    """Phi of the 2 x 2 table, pulled to 0 by half a problem per cell where it is positive."""
    scale = math.sqrt((both + b) * (c + neither) * (both + c) * (b + neither))
    product = both * neither - b * c
    if scale == 0:
        return 0.0
    if product > 0:
        product = max(product - (both + b + c + neither) / 2, 0)
    return product / scale


def _added(one: float, two: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * two + two * two))
