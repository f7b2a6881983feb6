"""Tables in Markdown that read well as plain text too."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from .numbers import NOTHING
from .text import visible

__all__ = ["is_numeric", "markdown_table"]

NUMBER = re.compile(r"[+−-]?[0-9][0-9.,]*( ?%| points)?( \[[^]]*\])?$")


def markdown_table(headers: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    r"""A table with aligned columns; columns of numbers stand to the right.

    Pipes are escaped and line breaks become spaces, so that no cell can leave its row.

    Args:
        headers: one per column.
        rows: as many cells each; None is written as a dash.

    Raises:
        ValueError: a row has another number of cells than there are headers.

    >>> print(markdown_table(["model", "right"], [["a|b", "84.2 %"], ["c", None]]))
    | model | right  |
    | ----- | -----: |
    | a\|b  | 84.2 % |
    | c     |      – |
    """
    table = [[_cell(cell) for cell in row] for row in [headers, *rows]]
    if bad := next((row for row in table if len(row) != len(table[0])), None):
        raise ValueError(f"A row has {len(bad)} cells, but there are {len(table[0])} headers.")
    columns = list(zip(*table, strict=True))
    widths = [max(3, *(_width(cell) for cell in column)) for column in columns]
    right = [is_numeric(column[1:]) for column in columns]
    rule = [
        "-" * (width - 1) + ":" if r else "-" * width
        for width, r in zip(widths, right, strict=True)
    ]
    aligned = [_row(table[0], widths, [False] * len(widths)), _row(rule, widths, right)]
    return "\n".join([*aligned, *(_row(row, widths, right) for row in table[1:])])


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column of cells reads as numbers: those stand to the right."""
    told = [cell for cell in cells if cell not in ("", NOTHING)]
    return bool(told) and all(NUMBER.match(cell) for cell in told)


def _cell(value: object) -> str:
    text = NOTHING if value is None else visible(str(value))
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def _width(text: str) -> int:
    """Columns of a terminal: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        space = " " * (width - _width(cell))
        padded.append(space + cell if to_right else cell + space)
    return f"| {' | '.join(padded)} |"
