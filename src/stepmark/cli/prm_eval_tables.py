"""The tables of ``prm eval`` on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from .console import out, plain, show

if TYPE_CHECKING:
    from stepmark.prm.eval_report import EvalReport

__all__ = ["tell_report"]

STYLES = {"scorer": "bold", "unseen": "", "floor": "", "published": "bright_black"}


def tell_report(report: EvalReport) -> None:
    """Print every table, folded to the width of the terminal."""
    from stepmark.prm.eval_table import (
        F1_HEADERS,
        f1_lines,
        headline,
        mean_lines,
        notes,
        position_lines,
        step_lines,
    )

    for data in report.data:
        records = report.of(data.name)
        out.print(headline(data, records), markup=False, style="bold", soft_wrap=False)
        lines = f1_lines(data, records)
        _show(F1_HEADERS, [line.cells for line in lines], [STYLES[line.kind] for line in lines])
        out.print()
        _show(*step_lines(records))
        out.print()
        _show(*position_lines(records))
        for note in notes(data, records):
            out.print(note, markup=False, soft_wrap=False)
        out.print()
    headers, means = mean_lines(report)
    if means:
        _show(headers, means)


def _show(
    headers: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(plain(header), overflow="fold", justify="right" if number else "left")
    for number, row in enumerate(rows):
        table.add_row(*map(plain, row), style=styles[number] if styles else None)
    show(table)
