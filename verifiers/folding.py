r"""Answers as words: what is left of a text when spacing, wrapping and letter case do not count."""

from __future__ import annotations

import re

__all__ = ["fold", "is_words", "text_key"]

_PROSE = re.compile(r"\\(?:text|textbf|mathrm|mbox|textit)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|(?<![\\])\$|\s+")
_WORD = re.compile(r"[A-Za-zÀ-ɏ一-鿿]{2,}")


def text_key(text: str) -> str:
    r"""The text without what never carries meaning; equal keys are equal answers.

    A space between two letters or digits stays: ``2 2/3`` is not ``22/3``.

    >>> text_key(r"\left( 3, \dfrac{1}{2} \right)") == text_key(r"(3,\frac{1}{2})")
    True
    """
    pieces = [
        piece
        for piece in _SPACING.split(text.replace("dfrac", "frac").replace("tfrac", "frac"))
        if piece
    ]
    out = ""
    for piece in pieces:
        out += f" {piece}" if out and out[-1].isalnum() and piece[0].isalnum() else piece
    return out.rstrip(".")


def fold(text: str) -> str:
    r"""Words alone: no LaTeX around them, one space between, lower case but for a single letter.

    >>> fold(r"\text{ Evelyn}."), fold("(B)")
    ('evelyn', 'B')
    """
    words = _PROSE.sub(r" \1 ", text)
    words = re.sub(r"\\[,;:! ]|[$\\{}*]", " ", words)
    words = " ".join(words.split()).strip(" .,;:!?\"'`")
    if len(words) == 3 and words[0] in "([" and words[-1] in ")]":
        words = words[1]
    return words if len(words) == 1 else words.lower()


def is_words(cleaned: str) -> bool:
    """Whether a text that is no maths reads as words: they make up most of it."""
    prose = _PROSE.sub(r" \1 ", cleaned)
    if (
        re.search(r"\\[A-Za-z]", prose)
        or "__" in prose
        or re.search(r"[\w)]\s*[=^<>]\s*[\w(\\]", prose)
    ):
        return False
    letters = sum(len(word) for word in _WORD.findall(prose))
    return letters * 2 > len(re.sub(r"\s", "", prose)) or bool(
        re.fullmatch(r"\W?[A-Za-z]\W?", prose)
    )
