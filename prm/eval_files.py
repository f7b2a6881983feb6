"""What an evaluation leaves in its folder beside the scores."""

from __future__ import annotations

from pathlib import Path

from stepmark.store import publish

from .eval_page import eval_page
from .eval_report import EvalReport
from .eval_table import table_text

__all__ = ["PAGE", "TABLE", "write_files"]

PAGE, TABLE = "report.html", "table.md"


def write_files(folder: Path, report: EvalReport) -> tuple[Path, Path]:
    """The paths of table and page; both are complete or as they were.

    Raises:
        SetupError: matplotlib is not installed; the table is there.
    """
    with publish(folder / TABLE) as part:
        part.write_text(table_text(report), encoding="utf-8")
    return folder / TABLE, eval_page(report).write(folder / PAGE)
