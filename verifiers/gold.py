"""A gold, read once for all completions of its problem, and only when a comparison needs it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .canonical import canonical
from .evaluate import differ
from .extract import extract_gold
from .folding import text_key
from .limits import TooLarge, Unreadable
from .matrices import has_matrix, worked_out
from .reading import parse
from .sets import INFINITY
from .structures import spread
from .tree import Binary, Call, Measure, Node, Number, Percent, Symbol

__all__ = ["Gold"]

UNREAD: Any = object()


class Gold:
    """A reference answer.

    Args:
        source: the gold of a data set: an answer, or a worked solution that ends in it.
    """

    __slots__ = ("_node", "_problem", "key", "source", "text", "whole")

    def __init__(self, source: str) -> None:
        self.source = source
        plain = source.isascii() and source.isdecimal()
        self.text = source if plain else (extract_gold(source).text or "").strip()
        self.key = source if plain else text_key(self.text[:4000])
        # Its value when it is digits only: most golds are, and most answers to them.
        self.whole = int(source) if plain and len(source) < 19 else None
        self._node: Node | None = UNREAD
        self._problem = ""

    def __reduce__(self) -> tuple[type[Gold], tuple[str]]:
        return Gold, (self.source,)

    @property
    def node(self) -> Node | None:
        """The tree; None when the gold cannot be read, and then `problem` says why."""
        if self._node is UNREAD:
            self._node, self._problem = _read(self.text)
        return self._node

    @property
    def problem(self) -> str:
        """Why it could not be read; empty when it could."""
        _ = self.node
        return self._problem


def _read(text: str) -> tuple[Node | None, str]:
    if not text:
        return None, "empty"
    try:
        node = parse(text)
        _check(node)
    except (Unreadable, TooLarge, RecursionError) as error:
        return None, str(error)
    return node, ""


def _check(node: Node) -> None:
    """Refuse a gold that nothing could be compared with: a division by zero, a power tower."""
    if not isinstance(node, Number | Symbol | Binary | Call | Percent | Measure):
        return
    if has_matrix(node):
        worked_out(node)
        return
    if spread(node) is not None or INFINITY in (node, getattr(node, "right", None)):
        return
    if isinstance(node, Number) and node.base is None:
        return
    try:
        canonical(node)
    except TooLarge:
        differ(node, Number(Fraction(0)))  # values at points may still tell answers from it
