"""``stepmark verify --file`` and ``eval regrade``: recorded responses, marked and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stepmark.errors import ConfigError

from .console import progress, say, warn
from .golds import tell_golds
from .interrupt import same_command, stoppable

if TYPE_CHECKING:
    from stepmark.evals.recorded import Recording

__all__ = ["FileJob", "verify_file"]


@dataclass(frozen=True, slots=True)
class FileJob:
    """What the flags ask for."""

    file: str
    out: Path
    verifier: str = "math"
    against: str | None = None
    gold_from: str | None = None
    join_on: str | None = None
    adjudicated: Path | None = None
    workers: int | None = None
    limit: int | None = None
    first: int | None = None
    completion_column: str | None = None
    gold_column: str | None = None
    id_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None

    @property
    def is_rows_only(self) -> bool:
        """Whether a file of verdict rows is asked for, not a folder."""
        return self.out.name.endswith(".jsonl")

    @property
    def in_workers(self) -> bool | None:
        """Whether several processes mark; None where nobody said."""
        return None if self.workers is None else self.workers > 1


def verify_file(job: FileJob, *, as_json: bool) -> int:
    """Mark the file and write what was found; 0, or 3 where rows could not be used."""
    from stepmark.verifiers import set_workers

    _check(job)
    if job.workers is None:
        return _verified(job, as_json=as_json)
    set_workers(job.workers)
    try:
        return _verified(job, as_json=as_json)
    finally:
        set_workers(None)


def _verified(job: FileJob, *, as_json: bool) -> int:
    from stepmark.evals import read_adjudications, regrade, verdict_rows
    from stepmark.verifiers import check_columns, load_verifier

    from .verify_report import tell_folder, tell_rows, write_page

    decided = read_adjudications(job.adjudicated) if job.adjudicated else []
    judge = load_verifier(job.verifier)
    other = load_verifier(job.against) if job.against else None
    recording = _recording(job)
    for one in filter(None, (judge, other)):
        check_columns(one, recording.columns)
    say(recording.announcement)
    tell_golds(judge, ((row.sample.id, row.sample.gold) for row in recording.rows))
    with stoppable(same_command(job.out)), _bar(as_json) as on_progress:
        if job.is_rows_only:
            rows = verdict_rows(
                job.file,
                judge,
                job.out,
                recording,
                in_workers=job.in_workers,
                on_progress=on_progress,
            )
            tell = partial(tell_rows, rows, judge.key, job.out, len(recording.rejects))
            where = _write_rejects(job.out, recording)
        else:
            found = regrade(
                job.file,
                judge,
                job.out,
                recording=recording,
                against=other,
                adjudications=decided,
                in_workers=job.in_workers,
                on_progress=on_progress,
            )
            tell = partial(tell_folder, found, write_page(found))
            where = job.out / "rejects.jsonl"
    tell(as_json=as_json)
    return _tell_rejects(recording, where)


def _check(job: FileJob) -> None:
    """Refuse flags that do not go together, before anything is read."""
    from stepmark.evals.marking import is_result

    if job.against is not None and job.label_column is not None:
        raise ConfigError(
            f"--against {job.against} and --label-column {job.label_column} both say what to "
            "compare with. Keep one of them."
        )
    if (job.gold_from is None) != (job.join_on is None):
        raise ConfigError(
            f"--gold-from is {job.gold_from!r} and --join-on {job.join_on!r}; golds are joined "
            "with both: --gold-from gsm8k --join-on id (ids, places from 0, questions or prompts)."
        )
    if job.gold_from is not None and job.gold_column is not None:
        raise ConfigError(
            f"--gold-from {job.gold_from} and --gold-column {job.gold_column} both say where golds "
            "are. Keep one of them."
        )
    compares = [("--against", job.against), ("--adjudicated", job.adjudicated)]
    if job.is_rows_only and (given := [f"{name} {value}" for name, value in compares if value]):
        raise ConfigError(
            f"{given[0]} compares verdicts, and --out {job.out} gets verdict rows only. "
            "Give a folder instead: --out FOLDER."
        )
    if is_result(Path(job.file)):
        raise ConfigError(
            f"--file {job.file} is a folder of verdicts, not of responses. Give the file that was "
            "marked; its verdicts are read again from --out."
        )
    if job.out.resolve() == Path(job.file).resolve():
        raise ConfigError(
            f"--out {job.out} is the file that is read; it would be lost. Choose another name."
        )


def _recording(job: FileJob) -> Recording:
    from stepmark.evals import Columns, join_golds, load_golds, read_recorded

    named = Columns(
        completion=job.completion_column,
        gold=job.gold_column,
        label=job.label_column,
        group=job.group_column,
        id=job.id_column,
    )
    task = load_golds(job.gold_from) if job.gold_from else None
    recording = read_recorded(job.file, named, needs_gold=task is None)
    if task is not None:
        recording = join_golds(recording, task, job.join_on or "")
    return _chosen(recording, job)


def _chosen(recording: Recording, job: FileJob) -> Recording:
    """Fewer rows, where a limit is given."""
    from stepmark.tasks import take
    from stepmark.types import Problem

    names = [f"{row.group}/{row.sample.id}/{row.sample.k}" for row in recording.rows]
    kept = {
        one.id for one in take([Problem(name, "", None) for name in names], job.limit, job.first)
    }
    rows = [row for row, name in zip(recording.rows, names, strict=True) if name in kept]
    return replace(recording, rows=rows)


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each verifier, on standard error; none for machines."""
    with progress(is_quiet=as_json) as bar:
        tasks: dict[str, object] = {}

        def tell(key: str, done: int, total: int) -> None:
            if key not in tasks:
                tasks[key] = bar.add_task(key, total=total, completed=done)
            bar.update(tasks[key], completed=done)  # type: ignore[arg-type]

        yield tell


def _write_rejects(out: Path, recording: Recording) -> Path:
    """Rejects beside a file of verdict rows; those of an earlier marking go."""
    from stepmark.store import append_rows, publish

    path = out.with_name(f"{out.name.removesuffix('.jsonl')}.rejects.jsonl")
    if recording.rejects:
        with publish(path) as part:
            append_rows(part, (reject.to_row() for reject in recording.rejects))
    else:
        path.unlink(missing_ok=True)
    return path


def _tell_rejects(recording: Recording, where: Path) -> int:
    """The exit code: 3 where rows could not be used, which is said."""
    if not recording.rejects:
        return 0
    first, number = recording.rejects[0], len(recording.rejects)
    word = "row" if number == 1 else "rows"
    place = f"{first.file}, line {first.line}" if first.file else f"line {first.line}"
    warn(f"{number:,} {word} could not be used: {where} ({place}: {first.reason})")
    return 3
