r"""The boxes of a completion, found in one pass however many braces it has."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Box", "boxes", "close_brace"]

OPENING = re.compile(r"\\(?:boxed|fbox|framebox)\b\s*")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


class Box(NamedTuple):
    """A complete box: where it stands, and what is in it."""

    start: int
    end: int
    content: str


def close_brace(text: str, start: int) -> int | None:
    """Where the brace at ``start`` closes (index after it), or None when it never does.

    >>> close_brace("{a{b}c}d", 0)
    7
    """
    end = text.find("}", start)
    if end < 0:
        return None
    if text.find("{", start + 1, end) < 0 and text[end - 1] != "\\":
        return end + 1
    depth = 0
    for match in BRACE.finditer(text, start):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def boxes(text: str) -> list[Box]:
    r"""All complete boxes in order of their start; of nested ones, only the outermost.

    A box that is never closed is none: the response was cut off inside it.

    >>> [box.content for box in boxes(r"\boxed{1} and \fbox{\frac{1}{2}} and \boxed{3")]
    ['1', '\\frac{1}{2}']
    """
    openings = list(OPENING.finditer(text))
    if not openings:
        return []
    starts = {m.end(): m.start() for m in openings if text[m.end() : m.end() + 1] == "{"}
    if not starts:
        return _bare(text)
    found: list[Box] = []
    for opened, start in starts.items():
        if found and start < found[-1].end:
            continue  # inside the box before
        end = close_brace(text, opened)
        if end is None:
            return _all(text, starts)  # never closed: each of many would be scanned to the end
        found.append(Box(start, end, text[opened + 1 : end - 1]))
    return found


def _all(text: str, starts: dict[int, int]) -> list[Box]:
    """The complete boxes among some that are not, in one pass over all braces."""
    found: list[Box] = []
    stack: list[int] = []
    for match in BRACE.finditer(text):
        if match.group() == "{":
            stack.append(match.start())
        elif match.group() == "}" and stack:
            opened = stack.pop()
            if opened in starts:
                found.append(Box(starts[opened], match.end(), text[opened + 1 : match.end() - 1]))
    return _outermost(sorted(found))


def _outermost(found: list[Box]) -> list[Box]:
    kept: list[Box] = []
    for box in found:
        if not kept or box.start >= kept[-1].end:
            kept.append(box)
    return kept


def _bare(text: str) -> list[Box]:
    r"""``\boxed 5``: one token without braces."""
    pattern = re.compile(r"\\(?:boxed|fbox)\s+([^\s{}$\\]{1,40})")
    return [Box(m.start(), m.end(), m.group(1).rstrip(".,")) for m in pattern.finditer(text)]
