"""An annotation in a run folder: roll-outs in its sample store, labels in files beside it.

::

    OUT/rows.jsonl           one labelled solution a line; `stepmark prm train` reads it
    OUT/left_out.jsonl       solutions without labels, and why
    OUT/math-shepherd.jsonl  the labels in Math-Shepherd's published layout
    OUT/summary.json         counts, costs
    OUT/samples/             the roll-outs, with ids, texts and verdicts

Both lists are append-only and in the order of the solutions. Stopped at any moment, a second call
draws only what the store lacks, and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.prm.formats.math_shepherd import MathShepherd
from stepmark.prm.formats.rejects import Rejected
from stepmark.prm.formats.rows import StepmarkRows, labelled_steps, row_line
from stepmark.store import RunFolder, append_rows, publish, read_rows, write_json

from .annotator import Annotator
from .counts import Cost
from .items import ToAnnotate

__all__ = ["Annotation", "annotate_into"]

ROWS = "rows.jsonl"
LEFT_OUT = "left_out.jsonl"
SHEPHERD = "math-shepherd.jsonl"
AT_ONCE = 16
"""Rows between two writes."""


class Annotation(NamedTuple):
    """What an annotation ended with."""

    counts: dict[str, Any]
    """See `Counts.to_row`; tokens read by earlier processes are included."""
    shepherd: int
    """Rows in Math-Shepherd's layout."""
    unsaid: int
    """Rows that it cannot say: a step without a label stands before one with a label."""


def annotate_into(
    folder: RunFolder,
    annotator: Annotator,
    items: Sequence[ToAnnotate],
    on_progress: Callable[[int, int], None] | None = None,
) -> Annotation:
    """Annotate solutions into a run folder, going on from what is there.

    Args:
        folder: its lock must be held; the annotator keeps its roll-outs in its store.
        annotator: made for this call.
        items: all solutions, those that are labelled already included.
        on_progress: called with the solutions that are done and all.

    Raises:
        EngineError: the engine gave fewer roll-outs than asked; what it gave is kept.
        VerifierError: more error verdicts than allowed.
    """
    files = _Files(folder.path)
    earlier = [row for row in folder.timings() if "prefilled" in row]
    step = max((row["step"] for row in earlier), default=0) + 1
    read = sum(int(row["prefilled"]) for row in earlier)
    tell = on_progress or (lambda done, total: None)

    def progressed(done: int) -> None:
        files.flush()
        folder.log_timings(step, {"prefilled": annotator.rollouts.prefilled})
        tell(done, len(items))

    annotator.on_left_out = lambda item, why: files.leave_out(item.key, why)
    annotator.on_progress = progressed
    tell(0, len(items))
    try:
        for one in annotator.annotate(items):
            files.add(one.item.key, StepmarkRows().write(one.row))
    finally:
        files.flush()
    counts = annotator.counts
    counts.spent += Cost(0, 0, read)
    shepherd, unsaid = _write_shepherd(folder.path)
    found = Annotation(counts.to_row(), shepherd, unsaid)
    write_json(folder.path / "summary.json", {"kind": "annotation", **found._asdict()})
    return found


class _Files:
    """The two lists; what they hold already is not written again."""

    def __init__(self, folder: Path) -> None:
        self.rows, self.left_out = folder / ROWS, folder / LEFT_OUT
        self.known = {row["meta"]["key"] for row in read_rows(self.rows)}
        self.known |= {row["key"] for row in read_rows(self.left_out)}
        self.pending: list[dict[str, Any]] = []
        self.reasons: list[dict[str, Any]] = []

    def add(self, key: str, row: dict[str, Any]) -> None:
        """A labelled solution."""
        if key not in self.known:
            self.pending.append(row)
        if len(self.pending) >= AT_ONCE:
            self.flush()

    def leave_out(self, key: str, why: str) -> None:
        """One without labels."""
        if key not in self.known:
            self.reasons.append({"key": key, "reason": why})

    def flush(self) -> None:
        """Put all on the disk."""
        append_rows(self.rows, self.pending)
        append_rows(self.left_out, self.reasons)
        self.pending, self.reasons = [], []


def _write_shepherd(folder: Path) -> tuple[int, int]:
    """Rows written in the published layout, and those that it cannot say."""
    written = unsaid = 0
    layout = MathShepherd()
    with publish(folder / SHEPHERD) as part, part.open("wb") as file:
        for row in labelled_steps(folder / ROWS) if (folder / ROWS).is_file() else ():
            try:
                file.write(row_line(layout.write(row)))
                written += 1
            except Rejected:
                unsaid += 1
    return written, unsaid
