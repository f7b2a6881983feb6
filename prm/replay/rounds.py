"""The rounds of a refresh on the disk: what was learnt, what came of it, and which model counts.

::

    OUT/rounds/3/rm/             the refreshed reward model, where it was accepted
    OUT/rounds/3/manifest.json   what it was made of, and its figures before and after
    OUT/rounds/4/rejected.json   the same of a round that was rejected
    OUT/rounds/3/metrics.jsonl   its training, step by step
    OUT/current                  link to the newest accepted model; switched by one rename
    OUT/probe.jsonl              the frozen probe set
    OUT/work/                    a round that is under way

A round appears whole or not at all. Killed between two writes, the same call continues.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepmark.errors import RunError
from stepmark.store import publish, write_json
from stepmark.store.files import sweep
from stepmark.store.lock import Lock

__all__ = ["Rescale", "current_model", "finished", "finished_rounds", "publish_round", "switch"]

ACCEPTED, REJECTED = "manifest.json", "rejected.json"
MODEL, CURRENT, WORK = "rm", "current", "work"


@dataclass(frozen=True, slots=True)
class Rescale:
    r"""Moves the scores of a refreshed model to where those of the model before it lay.

    .. math:: s' = \mu_{old} + (s - \mu_{new}) \, \sigma_{old} / \sigma_{new}

    with mean and standard deviation of all step scores on one frozen probe set. A reward stays
    comparable over the swap; GRPO's group normalisation needs none of it.
    """

    mean_before: float
    std_before: float
    mean_after: float
    std_after: float

    def apply(self, score: float) -> float:
        """A score of the refreshed model on the scale of the one before it; may leave [0, 1].

        >>> Rescale(0.6, 0.1, 0.5, 0.2).apply(0.9)
        0.8
        """
        if not self.std_after:
            return score - self.mean_after + self.mean_before
        return self.mean_before + (score - self.mean_after) * (self.std_before / self.std_after)

    def to_row(self) -> dict[str, float]:
        """The four numbers."""
        return asdict(self)


def current_model(out: Path | str) -> Path | None:
    """The newest accepted reward model of a folder of rounds; None before the first."""
    link = Path(out) / CURRENT
    return link.resolve() if link.is_dir() else None


def finished(out: Path, round: int) -> dict[str, Any] | None:
    """What a round came to; None where it is not done.

    Raises:
        RunError: its record cannot be read.
    """
    for name in (ACCEPTED, REJECTED):
        path = out / "rounds" / str(round) / name
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise RunError(
                    f"{path} cannot be read ({error}): it was altered. Restore it, or remove the "
                    f"folder of round {round} and refresh again."
                ) from error
            return found
    return None


def finished_rounds(out: Path) -> dict[int, dict[str, Any]]:
    """What every round that is done came to, by its number, rising."""
    folder = out / "rounds"
    names = [p.name for p in folder.iterdir() if p.name.isdecimal()] if folder.is_dir() else []
    found = {number: finished(out, number) for number in sorted(map(int, names))}
    return {number: row for number, row in found.items() if row is not None}


def publish_round(
    out: Path,
    round: int,
    row: Mapping[str, Any],
    model: Path | None,
    times: Mapping[str, Any],
    metrics: Path | None = None,
) -> Path:
    """Put a round where it belongs, whole; an accepted one with its model.

    Args:
        out: the folder of rounds.
        round: its number.
        row: its record.
        model: folder of the checkpoint; None for a rejected round.
        times: in seconds; beside the record, which holds none.
        metrics: of its training, step by step; copied beside the record.

    Raises:
        RunError: the round is there already.
    """
    place = out / "rounds" / str(round)
    with publish(place) as part:
        part.mkdir()
        if model is not None:
            leave = shutil.ignore_patterns("state")
            shutil.copytree(model, part / MODEL, ignore=leave, copy_function=_link_or_copy)
        write_json(part / (REJECTED if model is None else ACCEPTED), row)
        write_json(part / "timings.json", times)
        if metrics is not None and metrics.is_file():
            shutil.copy2(metrics, part / "metrics.jsonl")
    return place


def switch(out: Path, round: int) -> Path:
    """Make the model of an accepted round the current one, in one rename."""
    target = Path("rounds") / str(round) / MODEL
    link, part = out / CURRENT, out / f".{CURRENT}.{os.getpid()}.part"
    if not (link.is_symlink() and Path(os.readlink(link)) == target):
        part.unlink(missing_ok=True)
        part.symlink_to(target, target_is_directory=True)
        part.replace(link)
    return (out / target).resolve()


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The right to refresh in a folder; what a kill left half-made is swept first.

    Raises:
        RunError: another living process refreshes there.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = Lock(out / ".refresh.lock")
    lock.acquire()
    try:
        for folder in (out, out / "rounds"):
            if folder.is_dir():
                sweep(folder)
        yield
    finally:
        lock.release()


def work_folder(out: Path, round: int) -> Path:
    """Where a round is under way."""
    return out / WORK / f"round-{round}"


def clear_work(out: Path, round: int) -> None:
    """Remove what a finished round needed on the way."""
    shutil.rmtree(work_folder(out, round), ignore_errors=True)
    if (out / WORK).is_dir() and not any((out / WORK).iterdir()):
        (out / WORK).rmdir()


def _link_or_copy(source: str, target: str) -> str:
    """A second name for a file that nobody writes again; a copy where the disk has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
