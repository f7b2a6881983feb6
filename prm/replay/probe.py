"""The probe set: rows that every model of a folder of rounds is examined on, frozen at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

from stepmark.errors import RunError
from stepmark.prm.formats import labelled_steps, row_id, write_labelled_steps
from stepmark.prm.formats.rows import StepmarkRows
from stepmark.store import rows_hash, text_hash
from stepmark.types import LabelledSteps

from .buffer import ReplayBuffer
from .figures import Read
from .rounds import Rescale

__all__ = ["frozen_probe", "rescale_of", "rows_id"]

PROBE = "probe.jsonl"


class Moments(NamedTuple):
    """Mean and standard deviation of step scores."""

    mean: float
    std: float


def frozen_probe(
    out: Path, buffer: ReplayBuffer, given: Sequence[LabelledSteps], limit: int
) -> list[LabelledSteps]:
    """The probe set of a folder of rounds, which the first refresh chooses.

    Args:
        out: the folder.
        buffer: its first round gives the rows where none are given.
        given: labelled rows, or nothing.
        limit: most rows of the buffer, chosen by hash.

    Raises:
        RunError: other rows are given than those that were frozen.
    """
    path = out / PROBE
    if path.is_file():
        frozen = list(labelled_steps(path))
        if given and rows_id(given) != rows_id(frozen):
            raise RunError(
                f"The probe set of {str(out)!r} has {len(frozen):,} rows (hash "
                f"{rows_id(frozen)}), and other {len(given):,} rows (hash {rows_id(given)}) are "
                "given: the scores of earlier rounds could not be compared. Leave them out, or "
                "choose another folder for the rounds."
            )
        return frozen
    rows = list(given)
    if not rows:
        every = buffer.entries(split="held_out")
        number = min((entry.round for entry in every), default=0)
        first = [entry for entry in every if entry.round == number]
        rows = buffer.rows(sorted(first, key=lambda e: text_hash("limit " + e.id))[:limit])
    if rows:
        write_labelled_steps(path, rows)
    return rows


def rows_id(rows: Sequence[LabelledSteps]) -> str:
    """Sixteen hexadecimal digits of solutions and labels, whatever else the rows say."""
    write = StepmarkRows().write
    return rows_hash(
        {"id": row_id(row.problem.text, row.steps), "labels": write(row)["labels"]} for row in rows
    )


def rescale_of(before: Read | None, after: Read | None) -> Rescale | None:
    """How scores are moved, from those of two models on the probe; None without any."""
    one = None if before is None else _moments(before.scores)
    two = None if after is None else _moments(after.scores)
    return None if one is None or two is None else Rescale(*one, *two)


def _moments(scores: Sequence[Sequence[float]]) -> Moments | None:
    flat = [score for row in scores for score in row]
    return Moments(fmean(flat), pstdev(flat)) if flat else None
