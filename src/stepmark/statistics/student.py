"""Student's t distribution, for the base install, which has no scipy."""

from __future__ import annotations

import math

__all__ = ["t_probability", "t_quantile"]

TINY = 1e-300


def t_probability(t: float, degrees: float) -> float:
    r"""Two-sided tail probability :math:`P(|T| \ge |t|)` with so many degrees of freedom.

    .. math:: P = I_{\nu / (\nu + t^2)}(\nu / 2, 1 / 2)

    Abramowitz and Stegun, 26.7.1 and 26.5.27.

    >>> round(t_probability(2.0, 10), 6)
    0.073388
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def t_quantile(level: float, degrees: float) -> float:
    """The bound that so large a share of the distribution lies within, on both sides of 0.

    >>> round(t_quantile(0.95, 10), 4)
    2.2281
    """
    low, high = 0.0, 1.0
    while t_probability(high, degrees) > 1 - level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, degrees) > 1 - level else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction 26.5.8 of Abramowitz and Stegun."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
