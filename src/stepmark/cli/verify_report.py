"""What ``verify --file`` says at its end, and the page that it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .console import emit, grid, out, plain, show

if TYPE_CHECKING:
    from stepmark.evals import Regrade
    from stepmark.evals.marked import MarkedRow
    from stepmark.report import Dispute

__all__ = ["show_square", "tell_folder", "tell_rows", "write_page"]

ON_PAGE = 500
"""Disagreements that the page shows; disagreements.jsonl has all."""


def tell_rows(
    rows: Sequence[MarkedRow], key: str, path: Path, rejects: int, *, as_json: bool
) -> None:
    """The counts of a file of verdict rows."""
    from stepmark.evals.marked import statuses

    counts = Counter(_word(row.verdict.correct) for row in rows)
    told = {"verifier": key, "rows": len(rows), "rejects": rejects, "out": str(path), **counts}
    reasons = statuses(rows)

    def render() -> None:
        found = ", ".join(f"{number:,} {word}" for word, number in counts.items())
        word = "row" if len(rows) == 1 else "rows"
        out.print(f"{len(rows):,} {word} by {key}: {found}. {path}", markup=False)
        show_statuses(reasons)

    emit(told | {"statuses": reasons}, as_json, render)


def tell_folder(found: Regrade, page: Path, *, as_json: bool) -> None:
    """Groups, reasons, the 2 x 2 table, and where everything is."""

    def render() -> None:
        _show_groups(found)
        out.print()
        show_statuses(found.to_row()["statuses"])
        if found.square:
            out.print()
            show_square(found.square, found.verifier, found.label)
            if lacking := _unlabelled(found):
                out.print(lacking, markup=False)
        if found.adjudicated is not None:
            out.print(f"\n{_adjudicated(found)}", markup=False)
            show_square(found.before, found.verifier, found.adjudicated.label)
        _tell_places(found, page)

    emit(found.to_row() | {"out": str(found.out), "page": str(page)}, as_json, render)


def _unlabelled(found: Regrade) -> str:
    """How many rows the 2 x 2 table leaves out; empty where it has all."""
    number = sum(row.recorded.label is None for row in found.rows)
    rows = "1 row has" if number == 1 else f"{number:,} rows have"
    return f"{rows} no verdict of {found.label}, and no place in the table." if number else ""


def _adjudicated(found: Regrade) -> str:
    if found.adjudicated is None:
        return ""
    return found.adjudicated.told(found.rows, found.verifier) + " Before:"


def _tell_places(found: Regrade, page: Path) -> None:
    number, where = found.disagreements, found.out / "disagreements.jsonl"
    word = "disagreement" if number == 1 else "disagreements"
    if found.square:
        out.print(f"\n{number:,} {word}, each in {where}", markup=False)
    if number:
        out.print(f"To decide who is right: {page}, then --adjudicated FILE.", markup=False)
    out.print(f"Everything is in {found.out} (verifier {found.verifier}).", markup=False)


def _show_groups(found: Regrade) -> None:
    from stepmark.report import count, percent

    unmarked = [group.result.abstains + group.result.errors for group in found.groups]
    last = ["no verdict"] if any(unmarked) else []
    label = found.label if found.square else "recorded"
    table = grid("group", "n", plain(label), "ours [95 %]", "differ", "no answer", *last)
    for column in table.columns[2:4]:
        column.no_wrap = True
    for group, lacking in zip(found.groups, unmarked, strict=True):
        result = group.result
        cells = [
            plain(group.name or "all"),
            count(group.rows),
            percent(group.recorded),
            plain(percent(result.accuracy, (result.low, result.high))),
            count(group.disagreements),
            percent(result.no_answer),
            f"{lacking}, at most {percent(result.accuracy_upper)}" if lacking else "0",
        ]
        table.add_row(*cells[: len(table.columns)])
    show(table)


def show_statuses(reasons: Sequence[dict[str, object]]) -> None:
    """How many rows have each status and reason."""
    table = grid("status", "reason", "rows")
    table.columns[-1].justify = "right"
    for one in reasons:
        table.add_row(plain(str(one["status"])), plain(str(one["reason"])), f"{one['rows']:,}")
    show(table)


def show_square(square: Sequence[tuple[str, int, int]], ours: str, theirs: str) -> None:
    """The 2 x 2 table of two verdicts, with a third line where we gave none."""
    table = grid("", f"{plain(theirs)}: correct", f"{plain(theirs)}: wrong")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for word, right, wrong in square:
        table.add_row(plain(f"{ours}: {word}"), str(right), str(wrong))
    show(table)


def write_page(found: Regrade) -> Path:
    """The page to adjudicate on, in the folder."""
    from stepmark.evals.marked import disagreements
    from stepmark.report import Page, percent

    apart = disagreements(found.rows)
    source = Path(found.source).name
    page = Page("Verdicts", f"{source}, marked by {found.verifier}")
    page.section("Counts").text(found.announcement)
    lines = [
        (
            group.name or "all",
            group.rows,
            percent(group.recorded),
            percent(group.result.accuracy),
            group.disagreements,
        )
        for group in found.groups
    ]
    page.table(("group", "rows", found.label, "ours", "disagreements"), lines)
    reasons = [(one["status"], one["reason"], one["rows"]) for one in found.to_row()["statuses"]]
    page.table(("status", "reason", "rows"), reasons)
    if found.square:
        page.table((found.verifier, *_heads(found.label)), found.square, _unlabelled(found))
    if found.adjudicated is not None:
        page.text(_adjudicated(found))
        page.table((found.verifier, *_heads(found.adjudicated.label)), found.before)
    page.section("Disagreements").text(_intro(found, len(apart)))
    if apart:
        page.disputes([_dispute(row) for row in apart[:ON_PAGE]], found.verifier, found.label)
    return page.write(found.out / "page.html")


def _heads(label: str) -> tuple[str, str]:
    return f"{label}: correct", f"{label}: wrong"


def _intro(found: Regrade, number: int) -> str:
    if not found.square:
        return "There is nothing to compare with: no recorded verdict and no other verifier."
    shown = "all of them" if number <= ON_PAGE else f"the first {ON_PAGE} of them"
    return (
        f"{number:,} in all; here {shown}, by kind and rule. Say of each completion whether it is "
        "right or wrong, download the file, and give it to the same command: --adjudicated FILE."
    )


def _dispute(row: MarkedRow) -> Dispute:
    from stepmark.report import Dispute

    sample, other = row.recorded.sample, row.other
    said = "" if other is None else f"{other.reason}, extracted: {other.extracted or 'nothing'}"
    return Dispute(
        id=sample.id,
        k=sample.k,
        group=row.recorded.group,
        problem=sample.problem,
        completion=sample.completion,
        gold=row.verdict.gold,
        extracted=row.verdict.extracted,
        ours=_word(row.verdict.correct),
        theirs=_word(row.recorded.label),
        rule=row.rule,
        kind=row.kind,
        said=said,
    )


def _word(correct: bool | None) -> str:
    return {True: "correct", False: "wrong", None: "no verdict"}[correct]
