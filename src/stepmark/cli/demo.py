"""``stepmark demo``: two verifiers mark 200 embedded responses; where they differ, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepmark.errors import ConfigError

from .console import Debug, Json, emit, out, say

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from stepmark.demo import DemoResult, MarkedResponse

__all__ = ["demo", "run_demo", "show"]

LISTED = 10
"""Disagreements on the terminal; the page has all."""

NEXT = (
    ("stepmark verify '\\boxed{7/2}' --gold '3 1/2' --explain", "mark one completion of yours"),
    ("stepmark verify --file FILE --out DIR", "mark a file of them"),
    ("stepmark verifiers list", "all verifiers; show NAME says more"),
    ("stepmark quickstart", "train a small model with a verifier (needs stepmark[train])"),
)


def demo(
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Also write the page report.html in this folder.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """See two verifiers mark 200 responses: offline, in seconds, nothing to install."""
    if out_dir is not None and out_dir.exists() and not out_dir.is_dir():
        raise ConfigError(
            f"--out is {str(out_dir)!r}, which is a file; the page report.html is written in a "
            "folder. Name a folder; it is made if it is not there."
        )
    result = run_demo()
    page = None
    if out_dir is not None:
        from stepmark.demo import demo_page

        page = demo_page(result).write(out_dir / "report.html")
    told = result.to_json() | {"page": str(page) if page else None}
    emit(told, as_json, lambda: show(result, page))


def run_demo() -> DemoResult:
    """The embedded responses as `math` and `exact` mark them."""
    from stepmark.demo import mark_responses
    from stepmark.demo.marking import NAMES
    from stepmark.verifiers import load_verifier

    return mark_responses([(name, load_verifier(name)) for name in NAMES])


def show(result: DemoResult, page: Path | None = None) -> None:
    """Print the tour for people."""
    out.print(
        f"{len(result.marked)} responses to {result.problems} problems, marked by "
        f"{' and '.join(result.keys)}.",
        "They are Stepmark's own, chosen to be hard: a tour, not a benchmark.",
        sep="\n",
    )
    _headline("The two against each other")
    _print_table(_each_other(result))
    _headline("Each against our own labels")
    _print_table(_labels(result))
    apart = result.disagreements()
    listed = result.spread(LISTED)
    _headline(f"Where they disagree: {len(apart)} responses, {len(listed)} of them here")
    _print_table(_apart(result, listed))
    _explain(result, result.shown())
    _headline("Next")
    for command, what in NEXT:
        out.print(f"  {command}", markup=False, style="bold")
        out.print(f"      {what}", markup=False)
    if page is None:
        say("All disagreements and responses in one page: stepmark demo --out DIR")
    else:
        say(f"Page: {page}")


def _headline(text: str) -> None:
    out.print()
    out.print(text, style="bold cyan", markup=False)


def _print_table(table: Table) -> None:
    out.print(table, soft_wrap=False)


def _table(*headers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="", show_edge=False)
    for header in headers:
        table.add_column(header)
    return table


def _each_other(result: DemoResult) -> Table:
    first, second = result.names
    seen = result.against_each_other()
    kinds = [kind for kind in (True, False, None) if any(kind in pair for pair in seen)]
    table = _table("", *(f"{second} says {_word(kind)}" for kind in kinds))
    for column in table.columns[1:]:
        column.justify = "right"
    for a in kinds:
        table.add_row(f"{first} says {_word(a)}", *(str(seen[a, b]) for b in kinds))
    return table


def _labels(result: DemoResult) -> Table:
    table = _table("", "agrees", "right marked wrong", "wrong marked right", "no score")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, facts in result.to_json()["verifiers"].items():
        agrees = f"{facts['agrees_with_label']} of {len(result.marked)}"
        missed, taken = facts["right_marked_wrong"], facts["wrong_marked_right"]
        table.add_row(name, agrees, str(missed), str(taken), str(facts["no_score"]))
    return table


def _apart(result: DemoResult, apart: list[MarkedResponse]) -> Table:
    table = _table("response", "extracted", "gold", *result.names, "label")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:3]:
        column.max_width, column.overflow = (14 if out.width < 100 else 30), "ellipsis"
    for one in apart:
        first, second = one.verdicts
        found = first.extracted if first.extracted is not None else second.extracted
        table.add_row(
            one.response.name,
            _plain(found),
            _plain(one.response.gold),
            *(f"{_mark(v.correct)} {str(v.reason).replace('_', ' ')}" for v in one.verdicts),
            _word(one.response.right),
        )
    return table


def _explain(result: DemoResult, one: MarkedResponse) -> None:
    from rich.padding import Padding

    from stepmark.verifiers import explain

    response = one.response
    _headline(f"One of them, explained: {response.name}")
    out.print(Padding(_plain(response.problem), (0, 0, 0, 2), expand=False), soft_wrap=False)
    for line in response.completion.splitlines():
        out.print(Padding(_plain(f"│ {line}"), (0, 0, 0, 2), expand=False), soft_wrap=False)
    facts = [("gold", response.gold), ("our label", _word(response.right))]
    for name, verdict in zip(result.names, one.verdicts, strict=True):
        score = "" if verdict.score is None else f", score {verdict.score:g}"
        reason = str(verdict.reason).replace("_", " ")
        facts.append((name, f"{_word(verdict.correct)}{score}, reason: {reason}"))
        facts.append(("", f"extracted: {verdict.extracted}"))
        facts += [("", f"{key}: {value}") for key, value in verdict.detail.items()]
        if name == "math":
            read = explain(response.completion, gold=response.gold)
            facts.append(("", f"read as {read.completion_form}, the gold as {read.gold_form}"))
    for name, value in facts:
        out.print(
            Padding(_plain(f"{name:<10} {value}"), (0, 0, 0, 2), expand=False), soft_wrap=False
        )
    out.print(
        "  Trained against the second verdict, a model would be fined for correct\n"
        "  mathematics and paid for copying the form of the gold.",
        markup=False,
    )


def _plain(text: str | None) -> Text:
    """Text of a model for a terminal: no markup, no control characters, one line."""
    from rich.text import Text

    from stepmark.report import NOTHING, visible

    return Text(NOTHING if text is None else visible(text).replace("\n", "⏎"))


def _word(correct: bool | None) -> str:
    from stepmark.demo.page import word

    return word(correct)


def _mark(correct: bool | None) -> str:
    return {True: "✓", False: "✗", None: "?"}[correct]
