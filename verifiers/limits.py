"""The bounds that are checked before anything large is built, and the two refusals."""

from __future__ import annotations

__all__ = [
    "MAX_BITS",
    "MAX_CHAIN",
    "MAX_CHARS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_TERMS",
    "TooLarge",
    "Unreadable",
]

MAX_CHARS = 4_000
"""Longest answer that is parsed, in characters; the longest gold of MATH has 159."""
MAX_DEPTH = 60
"""Deepest nesting that is parsed; each level costs the interpreter several frames."""
MAX_CHAIN = 250
"""Most terms of a sum or factors of a product: the tree leans to the left, so this is depth."""
MAX_DIGITS = 1_000
"""Longest number as written, in digits."""
MAX_BITS = 100_000
"""Largest number that exact arithmetic may build; 2004! has 19,000 bits."""
MAX_TERMS = 400
"""Most terms of an expanded polynomial."""


class Unreadable(Exception):
    """The text is not maths that the parser can read to its end; the message says where."""


class TooLarge(Exception):
    """The text, or the value that it stands for, is beyond the bounds."""
