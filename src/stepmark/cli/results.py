"""The table of ``eval run`` on a screen: as in the file where it fits, else its main columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table

from .console import out, plain, show

if TYPE_CHECKING:
    from stepmark.evals import EvalResult

__all__ = ["show_results"]


def show_results(results: Sequence[EvalResult]) -> None:
    """Print the table in Markdown; on a terminal that is too narrow for it, fewer columns."""
    from stepmark.evals import table_text
    from stepmark.evals.table import footnote

    text = table_text(results)
    width = max(cell_len(line) for line in text.partition("\n\n")[0].splitlines())
    if not out.is_terminal or width <= out.width:
        out.print(text, markup=False, soft_wrap=True)
        return
    show(_main_columns(results))
    out.print()
    out.print(footnote(results).replace("  \n", "\n"), markup=False, soft_wrap=False)


def _main_columns(results: Sequence[EvalResult]) -> Table:
    """What is asked first: without the prompt, the tokens, and what a missing verdict could add."""
    from stepmark.evals.table import short_name
    from stepmark.report.numbers import count, percent

    has_errors = any(result.abstains + result.errors for result in results)
    names = {result.name for result in results}
    one = f"{names.pop()} [95 %]" if len(names) == 1 else "accuracy [95 %]"
    headers = ["model", "task", "n", one, "no answer", "truncated", *(["no verdict"] * has_errors)]
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        is_name = header in ("model", "task")
        rows.add_column(
            header, overflow="fold", no_wrap=not is_name, justify="left" if is_name else "right"
        )
    for result in results:
        mean = f" {result.name}" if one == "accuracy [95 %]" and result.name != "accuracy" else ""
        row = [
            plain(short_name(result.about.model)),
            plain(f"{result.about.task}/{result.about.split}"),
            count(result.n),
            percent(result.accuracy, (result.low, result.high)) + mean,
            percent(result.no_answer),
            percent(result.truncated),
        ]
        rows.add_row(*row, *([str(result.abstains + result.errors)] * has_errors))
    return rows
