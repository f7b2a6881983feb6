"""The sentences of `arith`: a small closed vocabulary, written so that people can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = [
    "ADDS",
    "BOXED",
    "HEAPED",
    "NAMES",
    "QUESTION",
    "TAKES",
    "THINGS",
    "pieces",
    "vocabulary",
]

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Mia", "Noah", "Tom", "Zoe")
THINGS = ("apples", "books", "cards", "coins", "eggs", "pens", "plums", "shells", "stamps", "toys")

HEAPED = ("{name} has {a} {things}.", "{name} starts with {a} {things}.")
"""How a story starts with one number."""
BOXED = (
    "{name} has {a} boxes with {b} {things} in each.",
    "{name} starts with {a} bags of {b} {things}.",
)
"""How a story starts with a product."""
ADDS = {
    1: ("{name} buys {a} more.", "{name} finds {a} more.", "{name} gets {a} more from a friend."),
    2: (
        "{name} buys {a} boxes with {b} {things} in each.",
        "{name} finds {a} bags of {b} {things}.",
    ),
}
"""Sentences that add, by how many numbers they hold (two: a product)."""
TAKES = {
    1: ("{name} gives away {a}.", "{name} loses {a}.", "{name} sells {a} of them."),
    2: ("{name} gives {b} to each of {a} friends.", "{name} sells {a} bags of {b} {things}."),
}
"""Sentences that take away, by how many numbers they hold."""
QUESTION = "How many {things} does {name} have now?"

_PIECE = re.compile(r" [+*=-] |: (?=\d)| ?[A-Za-z]+(?: (?=\d))?|\d|\n|[^\n]")


def pieces(text: str) -> list[str]:
    r"""The tokens of an `arith` text; joined they are the text again.

    A space belongs to the word or sign beside it and never to a digit, so every digit is one
    token wherever it stands.

    >>> pieces("Tom has 12 pens.\n12 + 3 = 15")
    ['Tom', ' has ', '1', '2', ' pens', '.', '\n', '1', '2', ' + ', '3', ' = ', '1', '5']
    """
    return _PIECE.findall(text)


def _texts() -> Iterator[str]:
    stories = (*HEAPED, *BOXED, *ADDS[1], *ADDS[2], *TAKES[1], *TAKES[2], QUESTION)
    for story in stories:
        for name in NAMES:
            for things in THINGS:
                sentence = story.format(name=name, things=things, a=1, b=1)
                yield from (sentence, " " + sentence)
    yield "1 + 1 = 1\n1 - 1 = 1\n1 * 1 = 1\nanswer: 1\n0123456789"


def vocabulary() -> tuple[str, ...]:
    """Every token that an `arith` prompt or solution can hold, sorted.

    >>> len(vocabulary())
    79
    """
    return tuple(sorted({piece for text in _texts() for piece in pieces(text)}))
