"""The option that a short response settles on, where the gold is an option's letter.

Only a letter that is stated counts: at the very start ("B, because ..."), or after "it is",
"option", "choose". A letter that merely occurs in prose, or after "not", is no answer.
"""

from __future__ import annotations

import re

__all__ = ["is_letter", "stated_letter"]

OPENING = re.compile(
    r"[\s*_(\[$]{0,6}([A-J])(?:[)\]*_$]{0,4}(?:[.,;:!。，：；、]|\s*$)|(?=[\u4e00-\u9fff]))"
)
STATED = re.compile(
    r"\b(?i:it['’]?s|it is|is|be|choose|pick|select|option|choice|go with|故选|选)"
    r"(?:\s+|(?<=选)[：:]?\s*)(?:option\s+|choice\s+|definitely\s+)?[*_(\[$]{0,4}([A-J])[)\]*_$]{0,4}"
    r"(?=\s*[.,;!。，]|\s*$|\s+(?:because|since|as|is(?!\s+not))\b)"
)
NEGATED = re.compile(r"\b(?:not|isn['’]t|neither|never)\b[^.,;]{0,12}$", re.IGNORECASE)
MAX_CHARS = 2_000


def is_letter(gold: str) -> bool:
    """Whether a gold is the letter of an option.

    >>> is_letter("B"), is_letter("BC"), is_letter("x")
    (True, False, False)
    """
    return len(gold) == 1 and "A" <= gold <= "J"


def stated_letter(text: str) -> str | None:
    """The letter that the end of a response states as its choice, or that it opens with.

    >>> stated_letter("It's not A, therefore I think it's B")
    'B'
    >>> stated_letter("I had a plan B once") is None
    True
    """
    tail = text[-MAX_CHARS:]
    stated = [
        match.group(1)
        for match in STATED.finditer(tail)
        if NEGATED.search(tail[max(0, match.start() - 30) : match.start(1)]) is None
    ]
    if stated:
        return stated[-1]
    match = OPENING.match(text)
    return match.group(1) if match else None
