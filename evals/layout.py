"""Layouts of recorded files that other tools write, turned into rows that are read alike.

A layout is known by its columns. It adds columns (an id, the reply inside a chat log, one label for
each filter of a harness) and says which column holds what; it never changes a column that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .columns import Columns
from .lines import Line, Reject

__all__ = ["Laid", "Layout", "first_of", "several"]


class Laid(NamedTuple):
    """Rows with the columns that a layout adds to them."""

    lines: list[Line]
    known: Columns
    """Which column holds what, for all that nobody named."""
    note: str = ""
    """A sentence on what else there is to know."""
    rejects: Sequence[Reject] = ()


class Layout(NamedTuple):
    """How the rows of a tool are known and read."""

    name: str
    fits: Callable[[frozenset[str]], bool]
    """Whether columns of these names are its own."""
    read: Callable[[list[Line]], Laid]


def first_of(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first wanted name that is there."""
    there = set(names)
    return next((name for name in wanted if name in there), None)


def several(lines: list[Line], column: str) -> str | None:
    """The column, where it has more than one value: rows are counted apart by it then."""
    return column if len({str(line.row.get(column)) for line in lines}) > 1 else None
