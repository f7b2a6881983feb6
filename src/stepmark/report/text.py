"""Text from models and data sets, made safe and visible for a page or a terminal."""

from __future__ import annotations

import html
import re

__all__ = ["escape", "shorten", "visible"]

KEPT_CHARS = 6000
"""What a page shows of one text; a megabyte of loops helps nobody and freezes phones."""

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufeff\ufffe\uffff"
    "\ud800-\udfff]"
)
"""Control characters, marks that turn the direction of writing, code points no file may hold."""


def visible(text: str) -> str:
    r"""The text with control characters shown by their numbers; line breaks and tabs stay.

    >>> visible("a\x1b[31mb\x00")
    'a<U+001B>[31mb<U+0000>'
    >>> visible("left\u202eright")
    'left<U+202E>right'
    """
    return UNSEEN.sub(_symbol, text.replace("\r\n", "\n").replace("\r", "\n"))


def _symbol(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def shorten(text: str, limit: int = KEPT_CHARS) -> str:
    r"""The text itself, or its beginning and its end with a note of how much was left out between.

    Args:
        text: any text.
        limit: characters kept, three quarters of them from the beginning.

    >>> shorten("abcdefgh" * 1000, 8)
    'abcdef\n[... 7,992 characters left out ...]\ngh'
    """
    if len(text) <= limit:
        return text
    tail = limit // 4
    head = limit - tail
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[len(text) - tail :]}"


def escape(text: object) -> str:
    """HTML that shows the text as it stands, in an element or in a quoted attribute.

    >>> escape("<script>1 & 2</script>")
    '&lt;script&gt;1 &amp; 2&lt;/script&gt;'
    """
    return html.escape(visible(str(text)), quote=True)
