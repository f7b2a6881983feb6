"""``stepmark verify --file``: a file of responses, marked and compared with what is known of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError

from .console import emit, grid, out, plain, progress, say, show

if TYPE_CHECKING:
    from stepmark.evals import Regrade
    from stepmark.evals.recorded import Recording
    from stepmark.protocols import OutcomeVerifier
    from stepmark.types import Verdict

__all__ = ["FileJob", "verify_file"]

ON_PAGE = 500
"""Disagreements that the page shows; disagreements.jsonl has all."""


@dataclass(frozen=True, slots=True)
class FileJob:
    """What the flags ask for."""

    file: Path
    out: Path | None
    verifier: str
    against: str | None
    limit: int | None
    first: int | None
    completion_column: str | None
    gold_column: str | None
    id_column: str | None
    label_column: str | None


def verify_file(job: FileJob, *, as_json: bool) -> int:
    """Mark the file and write what was found; 0 when that worked, whatever the verdicts."""
    from stepmark.verifiers import check_columns, load_verifier

    if job.out is None:
        raise ConfigError(
            f"--file {job.file} without --out. Add --out x.jsonl for verdict rows, "
            "or --out FOLDER for verdicts, disagreements, a table and a page."
        )
    if job.against is not None and job.label_column is not None:
        raise ConfigError(
            f"--against {job.against} and --label-column {job.label_column} both say what to "
            "compare with. Keep one of them."
        )
    judge = load_verifier(job.verifier)
    recording = _chosen(_read(job), job)
    check_columns(judge, recording.columns)
    if job.against is not None:
        other = load_verifier(job.against)
        check_columns(other, recording.columns)
        verdicts = _marked(other, recording, job.against)
        rows = [
            row._replace(label=v.correct) for row, v in zip(recording.rows, verdicts, strict=True)
        ]
        recording = replace(recording, rows=rows)
    if job.out.name.endswith(".jsonl"):
        return _rows_only(job.out, judge, recording, as_json=as_json)
    return _folder(job, judge, recording, as_json=as_json)


def _read(job: FileJob) -> Recording:
    from stepmark.evals import Columns
    from stepmark.evals.recorded import read_recorded

    named = Columns(
        completion=job.completion_column,
        gold=job.gold_column,
        label=job.label_column,
        id=job.id_column,
    )
    return read_recorded(str(job.file), named)


def _chosen(recording: Recording, job: FileJob) -> Recording:
    from stepmark.tasks.selection import take
    from stepmark.types import Problem

    names = [f"{row.group}/{row.sample.id}/{row.sample.k}" for row in recording.rows]
    kept = {
        one.id for one in take([Problem(name, "", None) for name in names], job.limit, job.first)
    }
    rows = [row for row, name in zip(recording.rows, names, strict=True) if name in kept]
    return replace(recording, rows=rows)


def _marked(judge: OutcomeVerifier, recording: Recording, name: str) -> list[Verdict]:
    from stepmark.evals.grade import AT_ONCE, check_error_share, mark

    samples = [row.sample for row in recording.rows]
    verdicts: list[Verdict] = []
    with progress() as bar:
        task = bar.add_task(name, total=len(samples))
        for start in range(0, len(samples), AT_ONCE):
            verdicts += mark(judge, samples[start : start + AT_ONCE])
            check_error_share(judge.key, verdicts, 0.1, is_partial=True)
            bar.update(task, completed=len(verdicts))
    check_error_share(judge.key, verdicts, 0.1)
    return verdicts


def _rows_only(path: Path, judge: OutcomeVerifier, recording: Recording, *, as_json: bool) -> int:
    from stepmark.store import append_rows, publish

    say(recording.announcement)
    verdicts = _marked(judge, recording, judge.key)
    pairs = list(zip(recording.rows, verdicts, strict=True))
    with publish(path) as part:
        append_rows(
            part, ({"id": row.sample.id, "k": row.sample.k} | v.to_row() for row, v in pairs)
        )
    counts = Counter(_word(verdict.correct) for verdict in verdicts)
    told = {"verifier": judge.key, "rows": len(verdicts), "rejects": len(recording.rejects)}
    told |= {"out": str(path), **counts}

    def render() -> None:
        found = ", ".join(f"{number} {word}" for word, number in counts.items())
        out.print(f"{len(verdicts)} rows by {judge.key}: {found}. {path}", markup=False)
        _tell_rejects(recording)

    emit(told, as_json, render)
    return 0


def _folder(job: FileJob, judge: OutcomeVerifier, recording: Recording, *, as_json: bool) -> int:
    from stepmark.evals import regrade
    from stepmark.store import read_rows

    folder = Path(str(job.out))
    with progress() as bar:
        task = bar.add_task(judge.key, total=len(recording.rows))
        found = regrade(
            job.file,
            judge,
            folder,
            recording=recording,
            on_progress=lambda done, total: bar.update(task, completed=done),
        )
    rows = read_rows(folder / "verdicts.jsonl")
    square = _square(rows) if any("label" in row for row in rows) else []
    name = job.against or (f"label {job.label_column}" if job.label_column else "recorded")
    page = _page(found, recording, square, name).write(folder / "page.html")

    def render() -> None:
        out.print(found.table().rstrip(), markup=False)
        if square:
            out.print()
            show_square(square, judge.key, name)
        out.print(
            f"\n{found.disagreements} disagreements: {folder}/disagreements.jsonl", markup=False
        )
        out.print(f"Page: {page}", markup=False)
        _tell_rejects(recording)

    table = [list(row) for row in square]
    emit(found.to_row() | {"out": str(folder), "square": table}, as_json, render)
    return 0


def _square(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Our word, then how many of those were recorded as correct and as wrong."""
    counts = Counter((_word(row["correct"]), row["label"]) for row in rows if "label" in row)
    words = ("correct", "wrong", "no verdict")
    lines = [(word, counts[word, True], counts[word, False]) for word in words]
    return [line for line in lines if line[0] != "no verdict" or any(line[1:])]


def show_square(square: list[tuple[str, int, int]], ours: str, theirs: str) -> None:
    """The 2 x 2 table on the terminal."""
    table = grid("", f"{theirs}: correct", f"{theirs}: wrong")
    for column in table.columns[1:]:
        column.justify = "right"
    for word, right, wrong in square:
        table.add_row(plain(f"{ours}: {word}"), str(right), str(wrong))
    show(table)


def _page(
    found: Regrade, recording: Recording, square: list[tuple[str, int, int]], theirs: str
) -> Any:
    from stepmark.report import Page, SampleView
    from stepmark.store import read_rows

    known = {(row.group, row.sample.id, row.sample.k): row for row in recording.rows}
    apart = read_rows(found.out / "disagreements.jsonl")
    page = Page("Verdicts", f"{Path(found.source).name}, marked by {found.verifier}")
    page.section("Counts").text(found.announcement)
    headers = ("group", "rows", theirs, "ours", "disagreements")
    lines = [
        (g.name or "all", g.rows, _share(g.recorded), _share(g.result.accuracy), g.disagreements)
        for g in found.groups
    ]
    page.table(headers, lines)
    if square:
        heads = (found.verifier, f"{theirs}: correct", f"{theirs}: wrong")
        page.table(heads, square)
    page.section("Disagreements").text(
        f"{len(apart)} in all; {min(len(apart), ON_PAGE)} of them here."
    )
    views = []
    for row in apart[:ON_PAGE]:
        one = known[row.get("group", ""), row["id"], row["k"]].sample
        views.append(
            SampleView(
                one.problem,
                one.completion,
                row["gold"],
                row["extracted"],
                row["correct"],
                row["reason"],
                title=" ".join(filter(None, (row.get("group"), row["id"]))),
                note=f"{theirs}: {_word(row['label'])}",
            )
        )
    return page.samples(views) if views else page


def _share(value: float | None) -> str | None:
    from stepmark.report.numbers import percent

    return percent(value)


def _word(correct: bool | None) -> str:
    return {True: "correct", False: "wrong", None: "no verdict"}[correct]


def _tell_rejects(recording: Recording) -> None:
    if recording.rejects:
        line = recording.rejects[0]
        say(f"{len(recording.rejects)} rows could not be used; line {line.line}: {line.reason}.")
