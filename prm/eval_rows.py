"""The rows that step scorers are examined on: our own, or a file of another project as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stepmark.errors import DataError
from stepmark.store import text_hash
from stepmark.types import LabelledSteps

from .formats import StepFormat, convert_file, labelled_steps, row_id
from .published_figures import recognise

__all__ = ["EvalRows", "read_eval_rows"]


@dataclass(frozen=True, slots=True)
class EvalRows:
    """Labelled solutions with what is known of the file that they come from."""

    name: str
    """Its name without ending, or ``processbench-gsm8k`` and the like where it is known."""
    place: str
    digest: str
    """Of the file."""
    format: str
    rows: tuple[LabelledSteps, ...]
    of_rows: int
    """Rows before the limit."""
    subset: str | None
    """The subset of ProcessBench that the whole file is."""
    rejects: Mapping[str, int]
    """Rows of the file that cannot be read, by reason."""
    first_reject: str


def read_eval_rows(
    place: str,
    format: str | None = None,
    *,
    limit: int | None = None,
    on_format: Callable[[StepFormat], None] | None = None,
) -> EvalRows:
    """The rows of a file; the same file and limit give the same rows.

    Args:
        place: rows of ``stepmark prm convert``, or a file or hub id that it reads.
        format: the layout, as ``prm convert --format`` takes it; guessed when None.
        limit: rows in all, chosen by a hash of problem and steps, kept in their order.
        on_format: called with the format before the first row is read.

    Raises:
        DataError: the file cannot be read, its format cannot be guessed, or no row can be used.
    """
    with TemporaryDirectory(prefix="stepmark-") as folder:
        out = Path(folder) / "rows.jsonl"
        found = convert_file(place, out, format, on_format=on_format)
        rows = list(labelled_steps(out))
    if not rows:
        first = f" The first, {found.first_reject}." if found.first_reject else ""
        raise DataError(
            f"{place} has no labelled solution that can be used, of {found.rows_in:,} rows read as "
            f"{found.format}.{first} Give another file, or name its layout with --format."
        )
    subset = recognise(rows)
    chosen = _by_hash(rows, limit) if limit is not None and limit < len(rows) else rows
    return EvalRows(
        name=f"processbench-{subset.name}" if subset else _stem(place),
        place=place,
        digest=found.source_hash,
        format=found.format,
        rows=tuple(chosen),
        of_rows=len(rows),
        subset=subset.name if subset else None,
        rejects=dict(sorted(found.rejects.items())),
        first_reject=found.first_reject,
    )


def _stem(place: str) -> str:
    name = place.rstrip("/").rpartition("/")[2]
    return name.removesuffix(".gz").rpartition(".")[0] or name


def _by_hash(rows: list[LabelledSteps], limit: int) -> list[LabelledSteps]:
    def place(number: int) -> tuple[str, int]:
        row = rows[number]
        return text_hash("limit " + row_id(row.problem.text, row.steps)), number

    return [rows[number] for number in sorted(sorted(range(len(rows)), key=place)[:limit])]
