"""Single completions of a run with what was said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepmark.errors import RunError, did_you_mean
from stepmark.store import Sample
from stepmark.types import Verdict

from .compare import graded_of

__all__ = ["show"]


def show(
    run: Path, *, wrong: bool = False, id: str | None = None, limit: int | None = None
) -> list[tuple[Sample, Verdict]]:
    """Completions of a run with their verdicts, in the order of the store.

    Args:
        run: the run folder.
        wrong: only those without full marks, those without a score included.
        id: only those of this problem.
        limit: at most so many.

    Raises:
        RunError: no run, or no problem with that id.
    """
    graded = graded_of(run)
    ids = dict.fromkeys(sample.id for sample, _ in graded)
    if id is not None and id not in ids:
        hint = did_you_mean(id, ids)
        raise RunError(f"{str(run)!r} has no problem {id!r}. {hint} It has {len(ids)} problems.")

    def wanted() -> Iterator[tuple[Sample, Verdict]]:
        for sample, verdict in graded:
            if (id is None or sample.id == id) and not (wrong and verdict.correct):
                yield sample, verdict

    return list(wanted())[:limit]
