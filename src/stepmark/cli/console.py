"""What every verb shares: where it prints, ``--json`` and ``--debug``, progress with time left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

__all__ = [
    "Debug",
    "Json",
    "emit",
    "err",
    "grid",
    "out",
    "plain",
    "progress",
    "say",
    "show",
    "warn",
]

out = Console(soft_wrap=True, highlight=False)
"""Results: standard output."""
err = Console(stderr=True, soft_wrap=True, highlight=False)
"""Everything said on the way: standard error, so that results can be piped."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]


def emit(value: dict[str, Any], as_json: bool, render: Callable[[], None]) -> None:
    """Print a result: as one JSON object, or as people like it."""
    if as_json:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    else:
        render()


def grid(*headers: str) -> Table:
    """A table for people: aligned columns without lines; cells are plain text unless styled."""
    table = Table(box=None, pad_edge=False, show_header=bool(headers), header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def show(table: Table) -> None:
    """Print a table, folded to the width of the terminal."""
    out.print(table, soft_wrap=False)


def say(message: str) -> None:
    """One plain line on the way to a result."""
    err.print(message, markup=False)


def warn(message: str) -> None:
    """One line that deserves a look."""
    err.print(f"[yellow]note:[/] {plain(message)}")


def plain(text: str) -> str:
    """Text as it is, inside of styled output: brackets are not read as styles."""
    from rich.markup import escape

    return escape(text)


def progress(*, is_quiet: bool = False) -> Progress:
    """A progress bar with time elapsed and left; where there is no terminal, nothing moves."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=False,
        disable=is_quiet or not err.is_terminal,
    )
