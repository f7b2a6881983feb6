"""How numbers are written in reports: one place, so that every table agrees."""

from __future__ import annotations

import math

__all__ = ["NOTHING", "count", "number", "percent", "points"]

NOTHING = "–"
"""What stands where there is no value: never 0."""


def percent(share: float | None, interval: tuple[float, float] | None = None) -> str:
    """A share as percent with one decimal, with its interval where one is given.

    Args:
        share: in [0, 1], or None when there is nothing to say.
        interval: lower and upper bound, in [0, 1].

    >>> percent(0.842, (0.821, 0.861))
    '84.2 % [82.1, 86.1]'
    >>> percent(None)
    '–'
    """
    if share is None or not math.isfinite(share):
        return NOTHING
    text = f"{100 * share:.1f} %"
    return (
        text if interval is None else f"{text} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    )


def points(difference: float | None, interval: tuple[float, float] | None = None) -> str:
    """A difference of two shares in percentage points, with its sign.

    >>> points(0.061, (0.012, 0.11))
    '+6.1 points [+1.2, +11.0]'
    """
    if difference is None or not math.isfinite(difference):
        return NOTHING
    text = f"{100 * difference:+.1f} points"
    if interval is None:
        return text
    return f"{text} [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"


def count(value: int | None) -> str:
    """A whole number with separators.

    >>> count(5276)
    '5,276'
    """
    return NOTHING if value is None else f"{value:,}"


def number(value: float | None, digits: int = 3) -> str:
    """A measured number to so many significant digits.

    >>> number(0.0123456), number(12.0), number(float("nan"))
    ('0.0123', '12', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.{digits}g}"
