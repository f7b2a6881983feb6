"""Two spellings of one answer that no tree shows: clock times, decimal commas, words in LaTeX."""

from __future__ import annotations

import re

from .folding import fold

__all__ = ["date_of", "plain_words", "same_spelling", "time_of"]

_MONTHS = {
    name[:3]: name
    for name in [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ]
}
NOTHING = "no solution"
_ABSENT = re.compile(r"(?:(?:limit|it|value|answer) )?(?:doe not exist|does not exist|dne)")
_NOTHING = frozenset(["no solution", "no real solution", "none", "empty set", "no such number"])
_MONTH = re.compile("|".join(_MONTHS), re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2})\s*:\s*(\d{2})(?::(\d{2}))?\s*(?:([ap])\.?\s?m\.?)?")
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
    upright = any(mark in text for mark in ("text", "mathrm") for text in (left, right))
    if upright and (fold(left) == fold(right) or _bare(left) == _bare(right)):
        return "same words"
    for one, other in ((left, right), (right, left)):
        comma, point = _COMMA.fullmatch(one.strip(" $")), _POINT.fullmatch(other.strip(" $"))
        if comma and point and comma.groups() == point.groups():
            return "decimal comma"
    if ":" not in left or ":" not in right:
        return None
    a, b = _clock(left), _clock(right)
    if a is None or b is None:
        return None
    half_day = 12 * 3600
    seconds, named = zip(a, b, strict=True)
    plain = [second for second, own in zip(seconds, named, strict=True) if not own]
    if all(named) or any(second >= half_day + 3600 for second in plain):
        return "clock" if seconds[0] == seconds[1] else None
    return "clock" if seconds[0] % half_day == seconds[1] % half_day else None


def _bare(text: str) -> str:
    r"""A formula without the commands that only set its letters upright, where it has no powers."""
    if "^" in text:
        return text
    return re.sub(r"\\(?:text|mathrm|textrm)(?![A-Za-z])|[{}$\s]", "", text)


def plain_words(words: str) -> str:
    """Words without what does not change their sense: hyphens, articles, the s of a plural.

    >>> plain_words("no solutions") == plain_words("no solution")
    True
    """
    parts = [
        part for part in words.replace("-", " ").split() if part not in ("the", "a", "an", "is")
    ]
    plain = " ".join(part.removesuffix("s") if len(part) > 3 else part for part in parts)
    if plain in _NOTHING:
        return NOTHING
    return "does not exist" if _ABSENT.fullmatch(plain) else plain


def date_of(text: str) -> tuple[str, ...] | None:
    """Month, day and, where there is one, year; None for a text that is no date.

    >>> date_of("May 5, 2024") == date_of("5th of May 2024")
    True
    """
    if _MONTH.search(text) is None:
        return None
    words = re.sub(r"[,.]|(?<=\d)(?:st|nd|rd|th)\b|\bof\b|\bthe\b", " ", fold(text)).split()
    months = [word for word in words if word[:3] in _MONTHS and _MONTHS[word[:3]].startswith(word)]
    numbers = [word for word in words if word.isdecimal()]
    if len(months) != 1 or len(months) + len(numbers) != len(words) or not 1 <= len(numbers) <= 2:
        return None
    days = [word for word in numbers if len(word) <= 2]
    years = [word for word in numbers if len(word) == 4]
    return (months[0][:3], *days, *years) if len(days) + len(years) == len(numbers) else None


def time_of(text: str) -> str | None:
    """A time of the day whose half is named, in hours and minutes of 24; else None.

    >>> time_of("3:20 p.m."), time_of("3:20")
    ('15:20', None)
    """
    known = _clock(text) if ":" in text else None
    if known is None or not known[1]:
        return None
    minutes, seconds = divmod(known[0], 60)
    return f"{minutes // 60}:{minutes % 60:02d}" + (f":{seconds:02d}" if seconds else "")


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
