"""``stepmark prm convert``: step labels of another project as rows of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import Stopped

from .console import Debug, Json, emit, grid, plain, progress, say, show, warn
from .interrupt import same_command, stoppable
from .prm_settings import settings_from

if TYPE_CHECKING:
    from stepmark.prm.formats import Conversion, StepFormat

__all__ = ["convert"]

File = Annotated[
    str, typer.Argument(metavar="FILE", help=".jsonl(.gz), .json, .parquet, .csv or a hub id.")
]
Out = Annotated[Path, typer.Option("--out", metavar="PATH.jsonl", help="Where the rows go.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="The layout; else it is guessed.")
]
To = Annotated[
    str, typer.Option("--to", help="The layout to write: stepmark, math-shepherd or trl.")
]
Neutral = Annotated[
    str | None, typer.Option(help="PRM800K's rating 0: positive, negative or mask.")
]
Alternatives = Annotated[
    str | None, typer.Option(help="Several completions a step: branch, prefix or trajectory.")
]
Phase = Annotated[str | None, typer.Option(help="Phase of PRM800K: 1, 2 or both.")]
AfterError = Annotated[
    str | None, typer.Option(help="Labels after the first wrong step: keep, mask or negative.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, see docs/prm-data.md."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Read so many rows only.")]


def convert(
    file: File,
    out: Out,
    format: Format = None,
    to: To = "stepmark",
    neutral: Neutral = None,
    alternatives: Alternatives = None,
    phase: Phase = None,
    after_error: AfterError = None,
    settings: Settings = None,
    limit: Limit = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Convert step labels (Math-Shepherd, PRM800K, TRL, ...) to rows for training; 3 if partial."""
    from stepmark.prm.formats import Repairs, convert_file

    flags = {
        "neutral": neutral,
        "alternatives": alternatives,
        "phase": phase,
        "after_error": after_error,
    }
    given = settings_from(settings or []) | {key: flag for key, flag in flags.items() if flag}
    repairs = {key: given.pop(key) for key in Repairs.__slots__ if key in given}

    def announce(reader: StepFormat) -> None:
        say(f"{file}: read as {reader.name}{'' if format else ' (guessed from its columns)'}")

    with _whole_or_nothing(out), _bar(as_json) as on_progress:
        found = convert_file(
            file,
            out,
            format,
            repairs=Repairs(**repairs),
            written_as=to,
            limit=limit,
            on_format=announce,
            on_progress=on_progress,
            **given,
        )
    emit(found.manifest() | _files(found), as_json, lambda: _tell(found))
    return _tell_rejects(found)


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[None]:
    command = same_command(out)
    try:
        with stoppable(command):
            yield
    except Stopped as stop:
        raise Stopped(
            f"Stopped; nothing was written to {out}. To begin again:\n    {command}",
            stop.signal_number,
        ) from stop


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[int, int], None]]:
    with progress(is_quiet=as_json) as bar:
        task = bar.add_task("converting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _files(found: Conversion) -> dict[str, Any]:
    from stepmark.prm.formats.convert import beside

    out = Path(found.out)
    rejects = str(beside(out, "rejects.jsonl")) if found.rejects else None
    return {"files": {"rows": str(out), "rejects": rejects}}


def _tell(found: Conversion) -> None:
    from stepmark.prm.formats.balance import WORDS

    table = grid()
    used = "" if found.rows_used == found.rows_in else f" ({found.rows_used:,} used)"
    distinct = "" if found.distinct == found.rows else f" ({found.distinct:,} different)"
    for name, value in (
        ("read", f"{_number(found.rows_in, 'row')}{used}"),
        (
            "written",
            f"{_number(found.rows, 'row')}{distinct} of {_number(found.problems, 'problem')}: "
            f"{found.out}",
        ),
        ("labels", _counts({word: found.labels[word] for word in WORDS})),
        ("last step", _counts({word: found.last_labels[word] for word in WORDS})),
        ("left out", _counts(found.left_out)),
        ("repaired", _counts(found.repaired)),
    ):
        if value:
            table.add_row(f"[bold]{name}[/]", plain(value))
    show(table)


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)


def _tell_rejects(found: Conversion) -> int:
    """The exit code: 3 where rows were rejected, which is said."""
    if not found.rows:
        warn(f"no row was written to {found.out}.")
    if not found.rejects:
        return 0
    from stepmark.prm.formats.convert import beside

    number = sum(found.rejects.values())
    word = "row was" if number == 1 else "rows were"
    where = beside(Path(found.out), "rejects.jsonl")
    warn(f"{number:,} {word} rejected, see {where}: {_counts(found.rejects)}.")
    say(f"The first, {found.first_reject}.")
    return 3
