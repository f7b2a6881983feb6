"""``stepmark prm inspect``: what a file of labelled steps holds, before anything learns from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Debug, Json, emit, grid, out, plain, progress, show

if TYPE_CHECKING:
    from stepmark.prm.formats import LabelBalance
    from stepmark.types import LabelledSteps

__all__ = ["inspect"]

POSITIONS = 10
"""Rows of the table by position; later steps share the last one."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="Rows that stepmark prm convert wrote.")]
Sample = Annotated[
    int, typer.Option(min=0, help="Solutions to show with their marks, from the top.")
]
Base = Annotated[
    str | None,
    typer.Option(help="Tokenizer or reward model, to show tokens and what a limit on them costs."),
]
MaxTokens = Annotated[
    int | None, typer.Option(min=8, help="A further limit, in tokens, to show the cost of.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="How rows are encoded, with --base."),
]


def inspect(
    file: File,
    base: Base = None,
    max_tokens: MaxTokens = None,
    settings: Settings = None,
    sample: Sample = 1,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the balance of labels, where errors stand, what repeats, and a marked sample."""
    from stepmark.prm import label_balance, labelled_steps
    from stepmark.prm.formats.balance import has_words

    from .prm_tokens import encoder_for, forecast_for, tell_tokens, token_cells

    encoder = encoder_for(base, max_tokens, settings or [])
    tokens = forecast_for(encoder, max_tokens) if encoder else None
    shown: list[LabelledSteps] = []
    with progress(is_quiet=as_json) as bar:
        rows = _kept(bar.track(labelled_steps(file), description="reading"), shown, sample)
        found = label_balance(tokens.counted(rows) if tokens else rows)

    def render() -> None:
        _tell_counts(found)
        _tell_positions(found)
        if tokens:
            tell_tokens(tokens)
        for row in shown:
            _tell_row(row, token_cells(encoder, row) if encoder and has_words(row) else None)

    more = {"tokens": tokens.to_json()} if tokens else {}
    emit({"file": str(file)} | found.to_json() | more, as_json, render)


def _kept(
    rows: Iterable[LabelledSteps], shown: list[LabelledSteps], number: int
) -> Iterator[LabelledSteps]:
    for row in rows:
        if len(shown) < number:
            shown.append(row)
        yield row


def _tell_counts(found: LabelBalance) -> None:
    from stepmark.prm.formats.balance import Spread

    from .prm_tokens import spread_text

    table = grid()
    per_problem = Spread.of(list(found.rows_per_problem.values()))
    for name, value in (
        ("rows", f"{found.rows:,} ({found.distinct:,} different) of {found.problems:,} problems"),
        ("conflicting", f"{found.conflicting:,} of them with other labels elsewhere"),
        ("read from", _shares(found.sources)),
        ("labelled by", f"{_shares(found.origins)}; {_shares(found.kinds)}"),
        ("labels", _shares(found.labels)),
        ("last step", _shares(found.last_labels)),
        ("first error", _first_errors(found)),
        ("final answer", _shares(found.final_correct) + _process_errors(found)),
        ("rows a problem", spread_text(per_problem)),
        ("steps a row", spread_text(Spread.of(found.steps_per_row))),
        ("characters a step", spread_text(Spread.of(found.chars_per_step))),
    ):
        if found.conflicting or name != "conflicting":
            table.add_row(f"[bold]{name}[/]", plain(value))
    show(table)


def _tell_positions(found: LabelBalance) -> None:
    from stepmark.prm.formats.balance import WORDS

    table = grid("step", *WORDS, "wrong of labelled", "first errors")
    for row in position_rows(found):
        table.add_row(*row)
    out.print()
    show(table)


def position_rows(found: LabelBalance) -> list[list[str]]:
    """The cells of the table by position; all positions from the eleventh on are one row."""
    from stepmark.prm.formats.balance import WORDS

    rows: list[list[str]] = []
    for at in range(min(len(found.by_position), POSITIONS + 1)):
        is_rest = at == POSITIONS
        counts = sum(found.by_position[at:], Counter[str]()) if is_rest else found.by_position[at]
        errors = sum(
            number
            for index, number in found.first_errors.items()
            if index == at or (is_rest and index > at)
        )
        labelled = counts.total() - counts["masked"]
        share = f"{counts['wrong'] / labelled:.1%}" if labelled else "-"
        name = f"{at + 1} on" if is_rest else str(at + 1)
        rows.append([name, *(f"{counts[word]:,}" for word in WORDS), share, f"{errors:,}"])
    return rows


def _tell_row(row: LabelledSteps, tokens: list[str] | None) -> None:
    from stepmark.report.text import shorten, visible

    out.print()
    out.print(visible(shorten(row.problem.text, 600)), markup=False, style="bold")
    table = grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for place, (step, label) in enumerate(zip(row.steps, row.labels, strict=True)):
        cell = tokens[place] if tokens else plain(visible(shorten(step, 300)))
        table.add_row(_mark(label), cell)
    show(table)


def _mark(label: float | None) -> str:
    if label is None:
        return "[dim]?[/]"
    if label in (0, 1):
        return "[green]+[/]" if label else "[bold red]-[/]"
    return f"{label:.2f}"


def _shares(counts: Counter[str]) -> str:
    total = counts.total()
    return ", ".join(
        f"{name} {number:,} ({number / total:.1%})"
        for name, number in counts.most_common()
        if number
    )


def _first_errors(found: LabelBalance) -> str:
    counts: Counter[str] = Counter()
    for index, number in found.first_errors.items():
        counts["none" if index == -1 else "found"] += number
    counts["not known"] = found.first_error_unknown
    return _shares(counts)


def _process_errors(found: LabelBalance) -> str:
    right = found.final_correct["right"]
    if not right:
        return ""
    number = found.right_answer_with_error
    return f"; {number:,} of {right:,} right ones hold a wrong step ({number / right:.1%})"
