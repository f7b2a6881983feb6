"""``stepmark prm eval``: how well step scorers find errors, beside floors and published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import ConfigError, Stopped, require

from .console import Debug, Json, emit, progress, say, warn
from .interrupt import same_command, stoppable

if TYPE_CHECKING:
    from stepmark.prm.eval_report import EvalReport
    from stepmark.prm.eval_rows import EvalRows
    from stepmark.prm.formats import StepFormat
    from stepmark.protocols import StepScorer

__all__ = ["evaluate", "named_scorers"]

Scorers = Annotated[
    list[str],
    typer.Argument(
        metavar="SCORER...",
        help="Folder of a checkpoint, a rule such as arithmetic, name?key=value, or file.py:NAME.",
    ),
]
Data = Annotated[
    list[str],
    typer.Option(metavar="FILE", help="Rows of prm convert, or a file that it reads; repeatable."),
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Layout of FILE; else it is guessed.")
]
Threshold = Annotated[
    str, typer.Option(help="A step below it is called wrong: a number, or fit, on a dev part.")
]
DevShare = Annotated[
    float, typer.Option(help="Share of the problems to fit on; they are in no figure.")
]
Aggregation = Annotated[
    str | None, typer.Option(help="Score of a solution: min, prod, mean, last, geometric, max.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="So many rows of a file, by a fixed hash.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for all files; again: continues it."),
]
MinF1 = Annotated[
    float | None, typer.Option(min=0, max=1, help="Exit 1 where an F1 is below, such as 0.4.")
]


def evaluate(
    scorers: Scorers,
    data: Data,
    format: Format = None,
    threshold: Threshold = "0.5",
    dev_share: DevShare = 0.2,
    aggregation: Aggregation = None,
    limit: Limit = None,
    out_: Out = None,
    min_f1: MinF1 = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Find first errors with step scorers: ProcessBench's F1, beside floors and published figures.

    F1 is the harmonic mean of two accuracies, of solutions with an error (its first step must be
    named exactly) and of those without; it is no F1 of precision and recall.

    stepmark prm eval runs/prm-1/checkpoints/best arithmetic --data processbench_gsm8k.jsonl
    """
    require("scipy", extra="train", purpose="An evaluation of step scorers")
    from stepmark.prm.eval_report import to_row
    from stepmark.prm.examine import Examination, examine

    how = Examination(_threshold(threshold), dev_share, aggregation)
    judges = named_scorers(scorers)
    rows = [_rows(place, format, limit) for place in data]
    _check_names(rows)
    with _continued(out_), _bar(as_json) as on_progress:
        report = examine(judges, rows, how, folder=out_, on_progress=on_progress)
        if out_ is not None:
            _write(report, out_)
    missed = _missed(report, min_f1)
    gate = {} if min_f1 is None else {"gate": {"min_f1": min_f1, "missed": missed}}
    emit(to_row(report) | gate, as_json, lambda: _tell(report, out_))
    for name in missed:
        warn(f"gate: {name} is below --min-f1 {min_f1:g}.")
    unread = _tell_rejects(rows)
    unscored = _tell_failures(report, out_)
    return 1 if missed else unread or unscored


def _threshold(word: str) -> float | None:
    if word == "fit":
        return None
    try:
        return float(word)
    except ValueError as error:
        raise ConfigError(
            f"--threshold is {word!r}; it is a number in [0, 1], or fit. Write --threshold 0.5."
        ) from error


def named_scorers(references: Sequence[str]) -> dict[str, StepScorer]:
    """The scorers by what tables call them."""
    from stepmark.evals.table import short_name
    from stepmark.prm import load_scorer

    found: dict[str, StepScorer] = {}
    for reference in dict.fromkeys(references):
        label = short_name(reference) if Path(reference).expanduser().is_dir() else reference
        found[reference if label in found else label] = load_scorer(reference)
    return found


def _rows(place: str, format: str | None, limit: int | None) -> EvalRows:
    from stepmark.prm.eval_rows import read_eval_rows

    def announce(reader: StepFormat) -> None:
        say(f"{place}: read as {reader.name}{'' if format else ' (guessed from its columns)'}")

    return read_eval_rows(place, format, limit=limit, on_format=announce)


def _check_names(rows: Sequence[EvalRows]) -> None:
    names = [one.name for one in rows]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"Two of --data are called {twice!r} in tables. Give each file once, and rename one "
            "of two files that are named alike."
        )


@contextmanager
def _continued(out_: Path | None) -> Iterator[None]:
    """A stop says how to go on; without ``--out`` there is nothing to go on from."""
    command = same_command(out_ or Path("DIR"))
    try:
        with stoppable(command):
            yield
    except Stopped as stop:
        if out_ is not None:
            raise
        raise Stopped(
            f"Stopped; no score was kept. With --out they are, and the same command goes on:\n"
            f"    {command}",
            stop.signal_number,
        ) from stop


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[str, str, int, int], None]]:
    with progress(is_quiet=as_json) as bar:
        tasks: dict[tuple[str, str], Any] = {}

        def tell(label: str, name: str, done: int, total: int) -> None:
            key = (label, name)
            if key not in tasks:
                tasks[key] = bar.add_task(f"{label} on {name}", total=total)
            bar.update(tasks[key], completed=done)

        yield tell


def _write(report: EvalReport, folder: Path) -> None:
    from stepmark.prm.eval_files import write_files
    from stepmark.prm.eval_report import write_report

    write_report(folder, report)
    write_files(folder, report)


def _missed(report: EvalReport, min_f1: float | None) -> list[str]:
    if min_f1 is None:
        return []
    found = [(one, one.figure("processbench_f1").value) for one in report.records]
    return [
        f"{one.label} on {one.data}: F1 {'unknown' if value is None else f'{value:.4f}'}"
        for one, value in found
        if value is None or value < min_f1
    ]


def _tell(report: EvalReport, folder: Path | None) -> None:
    from .prm_eval_tables import tell_report

    tell_report(report)
    if folder is not None:
        say(f"Everything is in {folder}: evaluation.json, table.md, scores.jsonl, report.html.")


def _tell_rejects(rows: Sequence[EvalRows]) -> int:
    """The exit code: 3 where rows could not be read, which is said."""
    bad = [one for one in rows if one.rejects]
    for one in bad:
        number = sum(one.rejects.values())
        words = "row cannot be read and is" if number == 1 else "rows cannot be read and are"
        warn(
            f"{one.place}: {number:,} {words} in no figure. The first, "
            f"{one.first_reject}. All of them: stepmark prm convert."
        )
    return 3 if bad else 0


def _tell_failures(report: EvalReport, folder: Path | None) -> int:
    """The exit code: 3 where a scorer failed on solutions, which is said."""
    bad = [one for one in report.records if one.failed_rows]
    again = "The same command" if folder else "With --out, the same command"
    for one in bad:
        warn(
            f"{one.label} failed on {one.failed_rows:,} solutions of {one.data}, and they count as "
            f"missed in its figures. {again} asks for these alone."
        )
    return 3 if bad else 0
