r"""Text to tree: an answer as it was found in a box, after a phrase, or in a gold."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from .cleaning import clean
from .folding import fold, is_words
from .limits import Unreadable
from .measures import compound
from .numbers import in_base, read_number
from .reader import Reader
from .spellings import date_of, time_of
from .tree import Binary, Group, Labelled, Measure, Node, Number, Symbol, Text
from .units import normal_unit
from .wording import WORD_NUMBERS, introduced, spoken_measure, spoken_number

__all__ = ["parse"]

_INTRODUCED = re.compile(r"\s*(?:[A-Za-z]{2,20}[ ,:]{1,3}){1,6}\$([^$]{1,500})\$\s*\.?\s*")
"""Words before one formula: "Answer $ 9 $", "Special matrix: $...$"."""
_OPTION = re.compile(
    r"(?:\\(?:text|textbf|textit|mathrm|mathbf|mathsf)\s*\{\s*\(?([A-J])[).]\s*\}"
    r"|\(([A-J])\)(?=[\s:\\~])|([A-J])[).:](?=[\s~]))"
    r"(?:[\s:~]|\\[ ,;:!]|\\q?quad)*((?![-+*/^=<>])\S.*)",
    re.DOTALL,
)
_NAMED_OPTION = re.compile(
    r"(?:\\text\s*\{\s*)?(?:[Oo]ption\s|[Cc]hoice\s|选项)\s*\(?([A-J])\)?\s*\}?|([A-J])\)"
)
_FRACTION = re.compile(r"\$?([-−]?)\\[dt]?frac\{(\d{1,9})\}\{([1-9]\d{0,8})\}\$?")
_DIGIT = re.compile(r"(?<![\^-])\d")


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    r"""The tree of an answer as found in a box, after a phrase, or in a gold.

    Raises:
        Unreadable: it is neither maths to its end nor words.
        TooLarge: it is longer, deeper or larger than the bounds.

    >>> parse("1,000")
    Number(value=Fraction(1000, 1), places=None, base=None)
    >>> parse(r"\text{Evelyn}")
    Text(words='evelyn')
    """
    simple = read_number(text)
    if simple is not None:
        return simple
    if (match := _FRACTION.fullmatch(text)) is not None:
        sign, top, bottom = match.group(1), match.group(2), match.group(3)
        value = -int(top) if sign else int(top)
        return Binary("/", Number(Fraction(value)), Number(Fraction(int(bottom))))
    cleaned = clean(text)
    if not cleaned:
        raise Unreadable("nothing")
    if (option := _OPTION.fullmatch(cleaned)) is not None:
        letter = option.group(1) or option.group(2) or option.group(3)
        return Labelled(letter, parse(option.group(4)))
    if (time := time_of(cleaned)) is not None:
        return Text(f"time {time}")
    if (date := date_of(cleaned)) is not None:
        return Text(f"date {' '.join(date)}")
    if (based := in_base(cleaned)) is not None:
        return Text(based)
    if (option := _NAMED_OPTION.fullmatch(cleaned)) is not None:
        return Symbol(option.group(1) or option.group(2))
    if cleaned[0].isalpha() or cleaned.startswith(("\\t", "\\m")):
        spoken = spoken_number(fold(cleaned))
        if spoken is not None:
            return Number(spoken)
        if (counted := spoken_measure(fold(cleaned))) is not None:
            return Measure(Number(counted[0]), normal_unit(counted[1]))
    try:
        return _whole(cleaned)
    except Unreadable:
        if (formula := _INTRODUCED.fullmatch(text)) is not None:
            return parse(formula.group(1))
        if (rest := introduced(cleaned)) is not None:
            return parse(rest)
        words = fold(cleaned)
        if is_words(cleaned):
            return Text(words)
        raise


def _whole(cleaned: str) -> Node:
    reader = Reader(cleaned)
    items = reader.items()
    if reader.next.kind != "end" or reader.next.text:
        raise Unreadable(f"{reader.next.text!r} after the end of a value")
    if len(items) == 1:
        return Text(fold(items[0].words)) if isinstance(items[0], Text) else items[0]
    if len(items) == 2 and _joined(items):
        return items[0]
    if (total := compound(items)) is not None:
        return total
    return Group(
        "", tuple(Text(fold(item.words)) if isinstance(item, Text) else item for item in items)
    )


def _joined(items: tuple[Node, ...]) -> bool:
    """Whether the second item is only prose that follows a comma, such as "5, as wanted"."""
    if not isinstance(items[1], Text) or isinstance(items[0], Text):
        return False
    words = items[1].words.split()
    guesses = any(word in WORD_NUMBERS or word in ("or", "maybe") for word in words)
    return len(words) > 1 and not guesses and not _DIGIT.search(items[1].words)
