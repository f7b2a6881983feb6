"""Marking recorded responses so that a kill loses little: verdicts are kept beside the result.

While it works, ``OUT.part`` holds the verdicts so far. The same command goes on from them; when all
are there, the result takes its place and the folder goes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepmark.errors import RunError
from stepmark.protocols import OutcomeVerifier
from stepmark.store import Lock, append_rows, read_rows, rows_hash, write_json
from stepmark.types import Item, Problem, Verdict
from stepmark.verifiers import Divided, mark_many

from .grade import AT_ONCE, check_error_share, mark
from .recorded import Recorded, Recording

__all__ = ["Job", "Workplace", "digest_of", "is_result", "workplace"]

KIND = "regrade"
JOB = "job.json"

SAVE_EVERY_S = 2.0
"""What a kill may lose, about: batches grow until marking one takes so long."""
FEW = 16
"""Completions in the first batch."""
SLOW_S = 0.0001
"""Time for one completion from which on worker processes pay for the way there and back."""
LONG_S = 10.0
"""Time left from which on they pay for their start."""

Progress = Callable[[str, int, int], None]
"""Called with the verifier's key, the verdicts there are and those there will be."""


@dataclass(frozen=True, slots=True)
class Job:
    """What makes verdicts those of this command, and of no other."""

    source: str
    """Name of the file, folder or data set."""
    digest: str
    """Of all that is marked."""
    verifier: str


def digest_of(recording: Recording) -> str:
    """Sixteen hexadecimal digits that change with anything that is marked, or its order."""
    return rows_hash(
        {
            "name": row.name,
            "gold": row.sample.gold,
            "problem": row.sample.problem,
            "completion": row.sample.completion,
            "meta": row.sample.meta,
        }
        for row in recording.rows
    )


class Workplace:
    """A folder in which verdicts wait until the result is whole.

    Args:
        folder: ``OUT.part``.
        out: the result, where an earlier one of the same job may stand.
        job: what is marked by whom.
        in_workers: mark in several processes; None: as soon as that is worth it.
    """

    def __init__(self, folder: Path, out: Path, job: Job, in_workers: bool | None = None) -> None:
        self.folder, self.out, self.job, self.in_workers = folder, out, job, in_workers

    def mark(
        self,
        verifier: OutcomeVerifier,
        recording: Recording,
        max_error_share: float,
        on_progress: Progress | None = None,
    ) -> list[Verdict]:
        """One verdict per row, in order; those that an earlier command made are read.

        Raises:
            VerifierError: more error verdicts than allowed.
        """
        path = self.folder / f"verdicts.{quote(verifier.key, safe='@+=-._,')}.jsonl"
        rows = recording.rows
        verdicts = self._known(path, verifier.key, rows)
        tell = on_progress or (lambda key, done, total: None)
        tell(verifier.key, len(verdicts), len(rows))
        saved, started = len(verdicts), time.monotonic()
        for verdict in self._fresh(verifier, rows[saved:]):
            verdicts.append(verdict)
            if len(verdicts) % 64 and len(verdicts) < len(rows):
                continue
            if len(verdicts) == len(rows) or time.monotonic() - started > SAVE_EVERY_S:
                check_error_share(verifier.key, verdicts, max_error_share, is_partial=True)
                append_rows(path, map(_kept, rows[saved:], verdicts[saved:]))
                saved, started = len(verdicts), time.monotonic()
            tell(verifier.key, len(verdicts), len(rows))
        check_error_share(verifier.key, verdicts, max_error_share)
        return verdicts

    def _fresh(self, verifier: OutcomeVerifier, rows: Sequence[Recorded]) -> Iterator[Verdict]:
        """The verdicts on these rows, in order, as they become ready."""
        start, size, in_workers = 0, FEW, self.in_workers
        while start < len(rows) and not in_workers:
            began, some = time.monotonic(), rows[start : start + size]
            yield from mark(verifier, [row.sample for row in some])
            start += len(some)
            took_s = time.monotonic() - began
            size = _next_size(size, took_s)
            if in_workers is None and isinstance(verifier, Divided):
                each_s = took_s / len(some)
                is_worth_it = each_s > SLOW_S and each_s * (len(rows) - start) > LONG_S
                in_workers = is_worth_it or None
        items = (_item(row, verifier) for row in rows[start:])
        yield from mark_many(items, verifier=verifier)

    def _known(self, path: Path, key: str, rows: Sequence[Recorded]) -> list[Verdict]:
        """The verdicts that an unfinished or a finished command left, a head of all."""
        kept = read_rows(path)
        if not kept:
            return self._finished(key, rows)
        names = [(row.get("group", ""), row["id"], row["k"]) for row in kept]
        if len(kept) > len(rows) or names != [row.name for row in rows[: len(kept)]]:
            raise RunError(
                f"{path} holds verdicts on other rows than those of {self.job.source!r}: it was "
                f"altered. Remove {str(self.folder)!r} and run the same command again."
            )
        return [Verdict.from_row(row) for row in kept]

    def _finished(self, key: str, rows: Sequence[Recorded]) -> list[Verdict]:
        found = _summary(self.out)
        if found is None or found.get("digest") != self.job.digest:
            return []
        name = {found.get("verifier"): "verdicts", found.get("against"): "against"}.get(key)
        kept = read_rows(self.out / f"{name}.jsonl") if name else []
        return [Verdict.from_row(row) for row in kept] if len(kept) == len(rows) else []


def _item(row: Recorded, verifier: OutcomeVerifier) -> Item:
    """What travels to a worker: of the row's other columns those that the verifier asks for."""
    sample = row.sample
    if not isinstance(verifier, Divided) or verifier.columns:
        return sample.to_item()
    return Item(_problem(sample.id, sample.problem, sample.gold), sample.completion, sample.prompt)


@lru_cache(maxsize=256)
def _problem(id: str, text: str, gold: str | None) -> Problem:
    """One object for all completions of a problem, which then travels once."""
    return Problem(id, text, gold)


def _next_size(size: int, took_s: float) -> int:
    """Twice as many after a quick batch, half as many after a slow one."""
    if took_s < SAVE_EVERY_S / 2:
        return min(AT_ONCE, size * 2)
    return max(FEW, size // 2) if took_s > SAVE_EVERY_S else size


def _kept(row: Recorded, verdict: Verdict) -> dict[str, Any]:
    group = {"group": row.group} if row.group else {}
    return {"id": row.sample.id, "k": row.sample.k} | verdict.to_row() | group


@contextmanager
def workplace(out: Path, job: Job, in_workers: bool | None = None) -> Iterator[Workplace]:
    """The place of a job's verdicts on their way to ``out``; removed when the block ends well.

    A finished result of the same file and verifier is replaced at the end; nothing else is.

    Raises:
        RunError: something else stands in ``out``, or another job is unfinished beside it, or
            another process works there.
    """
    _check_result(out, job)
    folder = out.with_name(f"{out.name}.part")
    _check_unfinished(folder, out, job)
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder / ".lock")
    lock.acquire()
    try:
        if not (folder / JOB).exists():
            write_json(folder / JOB, {"kind": KIND, **asdict(job)})
        yield Workplace(folder, out, job, in_workers)
        shutil.rmtree(folder)
    finally:
        if folder.exists() and not any(folder.glob("verdicts.*")):
            shutil.rmtree(folder)  # nothing to go on from
        lock.release()


def is_result(out: Path) -> bool:
    """Whether an earlier marking stands there: the only thing that a new one may replace."""
    return _summary(out) is not None


def _check_result(out: Path, job: Job) -> None:
    if out.is_dir() and any(out.iterdir()):
        found = _summary(out)
        if found is None:
            raise RunError(
                f"The folder {str(out)!r} already exists and is not empty; nothing was written. "
                "Choose another folder, or remove this one first."
            )
        if (found.get("source"), found.get("verifier")) != (job.source, job.verifier):
            raise _other(f"{str(out)!r} holds", found, job, out)
    elif out.is_file() and not _is_verdicts(out):
        raise RunError(
            f"{str(out)!r} exists and holds no verdict rows; it is not overwritten. "
            "Choose another name for --out."
        )


def _check_unfinished(folder: Path, out: Path, job: Job) -> None:
    if not folder.exists() or (folder.is_dir() and set(map(_name, folder.iterdir())) <= {".lock"}):
        return
    found = _read(folder / JOB)
    if found is None:
        raise RunError(
            f"{str(folder)!r} stands where unfinished verdicts are kept, and holds something else. "
            "Move it away, or choose another --out."
        )
    if any(found.get(name) != value for name, value in asdict(job).items()):
        raise _other(f"{str(folder)!r} holds unfinished", found, job, folder)


def _other(place: str, found: dict[str, Any], job: Job, folder: Path) -> RunError:
    asked = f"{job.verifier} on {job.source!r}"
    held = f"{found.get('verifier')} on {found.get('source')!r}"
    changed = f"asked for is {asked}" if held != asked else "its rows or the flags have changed"
    return RunError(
        f"{place} verdicts of {held}; {changed}. Choose another --out, or remove {str(folder)!r}."
    )


def _name(path: Path) -> str:
    return path.name


def _summary(out: Path) -> dict[str, Any] | None:
    return _read(out / "summary.json")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if found["kind"] == KIND else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_verdicts(path: Path) -> bool:
    with path.open("rb") as file:
        line = file.readline(2**20)
    try:
        return not line.strip() or {"id", "correct", "status", "reason"} <= json.loads(line).keys()
    except (ValueError, AttributeError):
        return False
