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

__all__ = ["Debug", "Json", "emit", "out", "progress", "say", "warn"]

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


def say(message: str) -> None:
    """One plain line on the way to a result."""
    err.print(message, markup=False)


def warn(message: str) -> None:
    """One line that deserves a look."""
    err.print(f"[yellow]note:[/] {_escape(message)}")


def _escape(message: str) -> str:
    from rich.markup import escape

    return escape(message)


def progress() -> Progress:
    """A progress bar with time elapsed and left; on something that is no terminal, nothing moves."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=False,
        disable=not err.is_terminal,
    )
