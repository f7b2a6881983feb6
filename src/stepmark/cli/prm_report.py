"""``stepmark prm report``: the page and the table of an evaluation, made again from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Debug, Json, emit, out

__all__ = ["report"]

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="What prm eval --out wrote.")]


def report(folder: Folder, as_json: Json = False, debug: Debug = False) -> None:
    """Make report.html and table.md of an evaluation again; nothing is scored."""
    from stepmark.prm.eval_files import write_files
    from stepmark.prm.eval_report import read_report

    written = write_files(folder, read_report(folder))
    emit(
        {path.name: str(path) for path in written},
        as_json,
        lambda: out.print("\n".join(map(str, written)), markup=False),
    )
