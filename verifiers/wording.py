"""Numbers as words, and words that stand before or after a value."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["HAN_SCALES", "SCALES", "WORD_NUMBERS", "introduced", "spoken_measure", "spoken_number"]

_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
WORD_NUMBERS: dict[str, int] = {word: value for value, word in enumerate(_ONES)}
WORD_NUMBERS |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
"""Words below a hundred."""
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALES |= {"trillion": 10**12}
HAN_SCALES = {"万": 10**4, "亿": 10**8}
SCALES |= HAN_SCALES
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8}
_PARTS |= {"seventh": 7, "ninth": 9, "tenth": 10}
_LEADING = re.compile(
    r"(?:\\(?:text|mathrm|textbf)\s*\{)?\s*(?P<words>[A-Za-z][A-Za-z' ]{1,80}?)"
    r"(?:\s+(?:is|are|equals|be)\b|\s*:)\s*\}?\s*(?P<rest>[^A-Za-z\s].*)",
    re.DOTALL,
)
_BOUNDS = re.compile(
    r"\b(?:not|no|never|least|most|more|less|fewer|over|under|almost|nearly|between|either|if)\b",
    re.IGNORECASE,
)


def spoken_number(words: str) -> Fraction | None:
    """The number that words spell, else None.

    >>> spoken_number("one thousand six hundred twenty-five"), spoken_number("three quarters")
    (Fraction(1625, 1), Fraction(3, 4))
    >>> spoken_number("one of them") is None
    True
    """
    parts = [word for word in re.split(r"[\s-]+", words.lower().strip()) if word != "and"]
    if not parts or len(parts) > 20:
        return None
    sign = 1
    if parts[0] in ("minus", "negative"):
        sign, parts = -1, parts[1:]
    if not parts:
        return None
    share = _PARTS.get(parts[-1].removesuffix("s").replace("halve", "half"))
    if share is not None:
        top = _whole(parts[:-1]) if len(parts) > 1 and parts[:-1] != ["a"] else 1
        return None if top is None else sign * Fraction(top, share)
    whole = _whole(parts)
    return None if whole is None else Fraction(sign * whole)


def spoken_measure(words: str) -> tuple[Fraction, str] | None:
    """A number in words and what it counts: "fourteen apples", "one mile"; else None.

    >>> spoken_measure("fourteen apples"), spoken_measure("one of them")
    ((Fraction(14, 1), 'apples'), None)
    """
    parts = words.split()
    if not 2 <= len(parts) <= 8 or parts[0].split("-")[0] not in WORD_NUMBERS:
        return None
    for end in range(len(parts) - 1, 0, -1):
        value = spoken_number(" ".join(parts[:end]))
        if value is not None and parts[end] not in ("of", "or", "and", "to", "by", "more", "less"):
            return value, " ".join(parts[end:])
    return None


def _whole(parts: list[str]) -> int | None:
    """The whole number of words such as "three hundred five"; None when a word is no number."""
    total = part = 0
    last = 0  # what the word before stood for: "six two" is two numbers, not eight
    for word in parts:
        if word == "a" and not part:
            continue
        if word in SCALES:
            scale = SCALES[word]
            part = max(part, 1) * scale
            if scale > 100:
                total, part = total + part, 0
            last = 100
        elif word in WORD_NUMBERS:
            value = WORD_NUMBERS[word]
            if last and (last < 20 or last <= value):
                return None
            part, last = part + value, value or 1
        else:
            return None
    return total + part if parts != ["a"] else None


def introduced(text: str) -> str | None:
    r"""What follows words that only lead up to it; None where the words change its meaning.

    >>> introduced("area: 12"), introduced(r"\text{There are }12\text{ ways}")
    ('12', '12\\text{ ways}')
    >>> introduced(r"\text{at least }12") is None
    True
    """
    match = _LEADING.fullmatch(text)
    if match is None or _BOUNDS.search(match["words"]):
        return None
    return match["rest"]
