"""Two spellings of one answer that no tree shows: clock times, decimal commas, words in LaTeX."""

from __future__ import annotations

import re

from .reading import fold

__all__ = ["same_spelling"]

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(?:([ap])\.?\s?m\.?)?")
_COMMA = re.compile(r"([-−]?\d+),(\d\d)")
_POINT = re.compile(r"([-−]?\d+)\.(\d\d)")


def same_spelling(left: str, right: str) -> str | None:
    r"""The rule by which two texts spell one answer, or None.

    A decimal comma is read as one only beside two digits and against the same digits with a point:
    alone, ``1,22`` is a list.

    >>> same_spelling("20:34", r"08:34 \text{P.M.}"), same_spelling("1,22", "1.22")
    ('clock', 'decimal comma')
    >>> same_spelling("12:00", "1:00") is None
    True
    """
    if len(left) > 200 or len(right) > 200:
        return None
    if ("text" in left or "text" in right) and fold(left) == fold(right):
        return "same words"
    for one, other in ((left, right), (right, left)):
        comma, point = _COMMA.fullmatch(one.strip(" $")), _POINT.fullmatch(other.strip(" $"))
        if comma and point and comma.groups() == point.groups():
            return "decimal comma"
    a, b = _clock(left), _clock(right)
    if a is None or b is None:
        return None
    half_day = 12 * 3600
    seconds, named = zip(a, b, strict=True)
    if all(named) or max(seconds) >= half_day + 3600:
        return "clock" if seconds[0] == seconds[1] else None
    return "clock" if seconds[0] % half_day == seconds[1] % half_day else None


def _clock(text: str) -> tuple[int, bool] | None:
    """Seconds since midnight, and whether the half of the day is named."""
    match = _CLOCK.fullmatch(fold(text).strip(" ."))
    if match is None:
        return None
    hour, minute, second, half = match.groups()
    hours = int(hour)
    if hours > 23 or int(minute) > 59:
        return None
    if half:
        hours = hours % 12 + (12 if half == "p" else 0)
    return hours * 3600 + int(minute) * 60 + int(second or 0), half is not None
