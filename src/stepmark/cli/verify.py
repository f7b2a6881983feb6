"""``stepmark verify``: one verdict, or a file of them."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from stepmark.errors import ConfigError
from stepmark.types import Item, Problem, Reason, Status, Verdict

from .console import Debug, Json, emit, grid, out, plain, show

Text = str | None

COLUMNS = "Columns of --file"


def verify(
    completion: Annotated[Text, typer.Argument(help="A response, or - to read one.")] = None,
    gold: Annotated[Text, typer.Option(help="The reference answer.")] = None,
    verifier: Annotated[str, typer.Option(metavar="NAME?key=value", help="Who marks.")] = "math",
    explain: Annotated[bool, typer.Option("--explain", help="Show how it was decided.")] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A column that the verifier asks for; repeatable."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Mark one completion, or a file of them.

    stepmark verify "So it is 18." --gold 18
    """
    if completion is None:
        raise ConfigError(
            "There is nothing to verify. Give a completion with --gold, such as\n"
            '    stepmark verify "The answer is 18." --gold 18\n'
            "or a file of them: stepmark verify --file FILE --out PATH."
        )
    return one(completion, gold, verifier, column or [], explain=explain, as_json=as_json)


def one(
    completion: str,
    gold: str | None,
    verifier: str,
    columns: list[str],
    *,
    explain: bool,
    as_json: bool,
) -> int:
    """Mark one completion and say so; 0 when there is a score, 2 when there is none."""
    from stepmark.verifiers import check_columns, load_verifier

    text = sys.stdin.read() if completion == "-" else completion
    meta = dict(_pair(column) for column in columns)
    judge = load_verifier(verifier)
    check_columns(judge, meta)
    started = time.perf_counter()
    (verdict,) = judge([Item(Problem("", str(meta.get("problem", "")), gold, meta=meta), text)])
    took_s = time.perf_counter() - started
    if gold is None and verdict.reason == Reason.GOLD_MISSING:
        raise ConfigError(f"{verifier} compares with a gold, and none is given. Add it: --gold 18.")
    row = {"verifier": judge.key} | verdict.to_row()

    def render() -> None:
        headline(verdict)
        if explain:
            explanation(judge.key, text, verdict, took_s)

    emit(row, as_json, render)
    return 0 if verdict.status is Status.OK else 2


def headline(verdict: Verdict) -> None:
    """The verdict in one line: word, what was found, what was wanted, why."""
    if verdict.score is None:
        word = f"[bold yellow]no verdict[/] ({verdict.status.value})"
    elif verdict.correct:
        word = "[bold green]correct[/]"
    elif verdict.score == 0:
        word = "[bold red]wrong[/]"
    else:
        word = f"[bold yellow]{verdict.score:.3g} of 1[/]"
    found = "" if verdict.extracted is None else f"  found {plain(_short(verdict.extracted))}"
    wanted = "" if verdict.gold is None else f"  gold {plain(_short(verdict.gold))}"
    out.print(f"{word}{found}{wanted}  [dim]{plain(str(verdict.reason))}[/]")
    if trace := verdict.detail.get("traceback"):
        out.print(str(trace).strip().splitlines()[-1], markup=False)


def explanation(key: str, completion: str, verdict: Verdict, took_s: float) -> None:
    """What was found where, how both sides were read, what decided, and how long it took."""
    table = grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows: list[tuple[str, Any]] = [
        ("verifier", key),
        ("completion", _end(completion)),
        ("found", "nothing" if verdict.extracted is None else verdict.extracted),
        ("gold", "none" if verdict.gold is None else verdict.gold),
        ("reason", _meaning(str(verdict.reason))),
        *((name.replace("_", " "), value) for name, value in verdict.detail.items()),
        ("time", f"{took_s * 1000:.1f} ms, the first verdict of a process is the slowest"),
    ]
    for name, value in rows:
        table.add_row(f"  [dim]{plain(name)}[/]", plain(str(value).rstrip()))
    show(table)


def _meaning(reason: str) -> str:
    """The word, and what it says where that is not plain."""
    said = {
        Reason.EQUAL: "both sides have the same value",
        Reason.DIFFERENT: "the two sides differ",
        Reason.JUDGED: "the verifier returned this and gave no reason",
        Reason.NO_ANSWER: "nothing in the completion is accepted as an answer",
        Reason.UNREADABLE: "what was found is not mathematics that can be read",
        Reason.TOO_LARGE: "what was found is beyond the bounds on length, depth or magnitude",
        Reason.TOO_SLOW: "the comparison was stopped twice, the second time on an idle worker",
        Reason.DECLINED: "the verifier returned None",
        Reason.GOLD_MISSING: "there is no gold to compare with",
        Reason.GOLD_UNREADABLE: "the gold is not mathematics that can be read",
        Reason.VERIFIER_RAISED: "the verifier raised an exception",
        Reason.WORKER_LOST: "the process that was marking died",
    }
    meaning = next((text for word, text in said.items() if word == reason), "")
    return f"{reason}: {meaning}" if meaning else reason


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(
            f"--column {text!r} names no value. Columns are written NAME=VALUE, such as unit=cm."
        )
    return name, value


def _short(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _end(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"... {text[-width:]}"
