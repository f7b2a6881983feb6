"""``stepmark verify``: one verdict, or a file of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stepmark.errors import ConfigError, did_you_mean
from stepmark.types import Item, Problem, Reason, Status, Verdict

from .console import Debug, Json, emit, out, plain
from .explaining import explanation, show_explanation

Text = str | None
Completion = Annotated[Text, typer.Argument(help="A response, or - to read one.")]
Gold = Annotated[Text, typer.Option(help="The reference answer.")]
Verifier = Annotated[str, typer.Option(metavar="NAME?key=value", help="Who marks.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show how it was decided.")]
Column = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A column that the verifier asks for; repeatable."),
]
File = Annotated[Text, typer.Option(help="Responses: a file, a folder of dumps, a run.")]
Out = Annotated[Path | None, typer.Option(help="x.jsonl: verdict rows only; else a folder.")]
Guessed = Annotated[Text, typer.Option(help="Guessed if not given.")]
Label = Annotated[Text, typer.Option(help="A recorded verdict to compare with.")]
Against = Annotated[Text, typer.Option(metavar="NAME", help="Compare with a verifier.")]
GoldFrom = Annotated[
    Text, typer.Option(metavar="TASK", help="Take golds from a task or a file of problems.")
]
JoinOn = Annotated[
    Text, typer.Option(metavar="COLUMN", help="Its ids, places from 0, questions or prompts.")
]
Decided = Annotated[Path | None, typer.Option(metavar="FILE", help="What was decided on the page.")]
Workers = Annotated[int | None, typer.Option(help="Processes that mark; else as they pay off.")]
Limit = Annotated[int | None, typer.Option(help="So many rows, chosen by hash.")]
First = Annotated[int | None, typer.Option(help="The first so many rows.")]


def verify(
    completion: Completion = None,
    gold: Gold = None,
    verifier: Verifier = "math",
    explain: Explain = False,
    column: Column = None,
    file: File = None,
    out: Out = None,
    completion_column: Guessed = None,
    gold_column: Guessed = None,
    id_column: Guessed = None,
    label_column: Label = None,
    against: Against = None,
    gold_from: GoldFrom = None,
    join_on: JoinOn = None,
    adjudicated: Decided = None,
    workers: Workers = None,
    limit: Limit = None,
    first: First = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Mark one completion, or a file of them.

    stepmark verify "So it is 18." --gold 18
    """
    of_files: dict[str, Any] = {
        "completion_column": completion_column,
        "gold_column": gold_column,
        "id_column": id_column,
        "label_column": label_column,
        "against": against,
        "gold_from": gold_from,
        "join_on": join_on,
        "adjudicated": adjudicated,
        "workers": workers,
        "limit": limit,
        "first": first,
    }
    if file is not None and completion is None:
        from .verify_file import FileJob, verify_file

        _refuse_single(file, gold, explain, column)
        job = FileJob(file, _out(file, out), verifier, **of_files)
        return verify_file(job, as_json=as_json)
    text = _single(completion, {"file": file, "out": out} | of_files)
    return one(text, gold, verifier, column or [], explain=explain, as_json=as_json)


def _single(completion: str | None, of_files: Mapping[str, Any]) -> str:
    """The completion, where one was given and nothing that belongs to a file of them."""
    given = [f"--{name.replace('_', '-')}" for name, value in of_files.items() if value is not None]
    if completion is not None and given:
        raise ConfigError(
            f"A completion ({_short(completion, 20)!r}) and {given[0]}, which belongs to a file of "
            "them. Give a completion with --gold, or --file FILE with --out PATH."
        )
    if completion is None:
        raise ConfigError(
            "There is nothing to verify. Give a completion with --gold, such as\n"
            '    stepmark verify "The answer is 18." --gold 18\n'
            "or a file of them: stepmark verify --file FILE --out PATH."
        )
    return completion


def _out(file: str, path: Path | None) -> Path:
    if path is None:
        raise ConfigError(
            f"--file {file} without --out. Add --out x.jsonl for verdict rows, "
            "or --out FOLDER for verdicts, disagreements, a table and a page."
        )
    return path


def _refuse_single(file: str, gold: str | None, explain: bool, columns: list[str] | None) -> None:
    flags = {"--gold": gold is not None, "--explain": explain, "--column": bool(columns)}
    if given := [name for name, is_given in flags.items() if is_given]:
        raise ConfigError(
            f"{given[0]} belongs to one completion, and --file {file} holds many. Golds and other "
            "columns are read from the file: --gold-column NAME. To explain one, give it alone."
        )


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
    from stepmark.verifiers import load_verifier

    text = sys.stdin.read() if completion == "-" else completion
    meta = dict(_pair(column) for column in columns)
    judge = load_verifier(verifier)
    if missing := sorted(judge.columns - meta.keys()):
        given = " ".join(f"--column {name}=VALUE" for name in missing)
        hint = did_you_mean(missing[0], meta)
        said = [f"{verifier} asks for {', '.join(missing)}, not given.", hint, f"Add {given}."]
        raise ConfigError(" ".join(filter(None, said)))
    started = time.perf_counter()
    (verdict,) = judge([Item(Problem("", str(meta.get("problem", "")), gold, meta=meta), text)])
    took_s = time.perf_counter() - started
    if gold is None and verdict.reason == Reason.GOLD_MISSING:
        raise ConfigError(f"{verifier} compares with a gold, and none is given. Add it: --gold 18.")
    row = {"verifier": judge.key} | verdict.to_row()
    explained = explanation(judge, text, verdict) if explain else {}
    row |= {"explained": explained} if explain else {}

    def render() -> None:
        headline(verdict)
        if explain:
            show_explanation(explained | {"time": f"{took_s * 1000:.1f} ms"})

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


def _visible(text: str) -> str:
    """Model text must not steer the terminal: control characters are shown, not obeyed."""
    from stepmark.report import visible

    return visible(text)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(
            f"--column {text!r} names no value. Columns are written NAME=VALUE, such as unit=cm."
        )
    return name, value


def _short(text: str, width: int = 60) -> str:
    line = " ".join(_visible(text).split())
    return line if len(line) <= width else f"{line[: width - 3]}..."
