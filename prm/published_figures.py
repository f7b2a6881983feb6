"""Figures that others published for ProcessBench, and how a file is known to be one of its subsets.

They stand beside figures of your own for orientation: prompts, thresholds and revisions of the data
may differ. F1 is ProcessBench's, in per cent, on all rows of a subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepmark.store import text_hash
from stepmark.types import LabelledSteps

from .formats import row_id

__all__ = ["PUBLISHED", "Published", "Subset", "published_for", "recognise"]


class Subset(NamedTuple):
    """A part of ProcessBench."""

    name: str
    rows: int
    digest: str
    """Of the texts of all problems and steps, in any order; labels do not enter."""


class Published(NamedTuple):
    """One model's F1 on the subsets, in per cent, as a paper prints it."""

    model: str
    kind: str
    """``PRM``, ``ORM`` (outcome reward model) or ``critic`` (a language model that is asked)."""
    f1: tuple[float, float, float, float]
    """On gsm8k, math, olympiadbench and omnimath."""
    source: str


SUBSETS = (
    Subset("gsm8k", 400, "f1b7aab08df2c6d8"),
    Subset("math", 1000, "447453861ab1d9ee"),
    Subset("olympiadbench", 1000, "7a317cf38f17223c"),
)
"""Those whose files we have read; omnimath is evaluated like any other file."""

BENCH = "arXiv:2412.06559"
LESSONS = "arXiv:2501.07301"

PUBLISHED = (
    Published("Math-Shepherd-PRM-7B", "PRM", (47.9, 29.5, 24.8, 23.8), BENCH),
    Published("RLHFlow-PRM-Mistral-8B", "PRM", (50.4, 33.4, 13.8, 15.8), BENCH),
    Published("RLHFlow-PRM-Deepseek-8B", "PRM", (38.8, 33.8, 16.9, 16.9), BENCH),
    Published("Skywork-PRM-1.5B", "PRM", (59.0, 48.0, 19.3, 19.2), BENCH),
    Published("Skywork-PRM-7B", "PRM", (70.8, 53.6, 22.9, 21.0), BENCH),
    Published("Qwen2.5-Math-7B-PRM800K", "PRM", (68.2, 62.6, 50.7, 44.3), BENCH),
    Published("Qwen2.5-Math-7B-Math-Shepherd", "PRM", (62.5, 31.6, 13.7, 7.7), LESSONS),
    Published("EurusPRM-Stage2", "PRM", (47.3, 35.7, 21.2, 20.9), LESSONS),
    Published("Qwen2.5-Math-PRM-7B", "PRM", (82.4, 77.6, 67.5, 66.3), LESSONS),
    Published("Qwen2.5-Math-PRM-72B", "PRM", (87.3, 80.6, 74.3, 71.1), LESSONS),
    Published("Qwen2.5-Math-RM-72B", "ORM", (43.5, 47.2, 37.6, 27.4), LESSONS),
    Published("GPT-4o-0806", "critic", (79.2, 63.6, 51.4, 53.5), BENCH),
    Published("QwQ-32B-Preview", "critic", (88.0, 78.7, 57.8, 61.3), BENCH),
    Published("o1-mini", "critic", (93.2, 88.9, 87.2, 82.4), BENCH),
)
"""Rows of the two papers."""

COLUMNS = ("gsm8k", "math", "olympiadbench", "omnimath")


def recognise(rows: Sequence[LabelledSteps]) -> Subset | None:
    """The subset of ProcessBench that these rows are, by their number and texts; else None."""
    possible = [subset for subset in SUBSETS if subset.rows == len(rows)]
    if not possible:
        return None
    ids = sorted(row_id(row.problem.text, row.steps) for row in rows)
    digest = text_hash("\n".join(ids))
    return next((subset for subset in possible if subset.digest == digest), None)


def published_for(subset: str) -> list[tuple[str, str, float, str]]:
    """Model, kind, F1 in [0, 1] and source of all that was published for a subset.

    >>> published_for("gsm8k")[0]
    ('Math-Shepherd-PRM-7B', 'PRM', 0.479, 'arXiv:2412.06559')
    """
    place = COLUMNS.index(subset)
    return [(one.model, one.kind, round(one.f1[place] / 100, 4), one.source) for one in PUBLISHED]
