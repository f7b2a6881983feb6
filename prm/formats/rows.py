"""Our own rows: one JSON object per labelled solution, read and written as a stream.

::

    {"id": "1466dd97450f01b8", "problem_id": "...", "problem": "1 + 1?", "gold": "2",
     "steps": ["1 + 1 = 3", "answer: 3"], "labels": [0, null], "kind": "hard",
     "origin": "human", "source": "prm800k", "final_correct": false, "meta": {"phase": 2}}

Only ``problem``, ``steps`` and ``labels`` are needed to read a row; all else has a default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from stepmark.errors import DataError
from stepmark.store import publish, text_hash
from stepmark.types import LabelKind, LabelledSteps, Problem

from .cells import label_list, need_text, text_list
from .rejects import LeftOut, Rejected, RejectReason
from .source import Source

__all__ = [
    "TEXTS",
    "StepmarkRows",
    "labelled_steps",
    "problem_id",
    "row_id",
    "row_line",
    "write_labelled_steps",
]

Row = Mapping[str, Any]
TEXTS = ("completion", "response", "output", "solution")
"""Columns of a row that may hold a solution which is not divided yet."""
NEEDED = ("problem", "steps", "labels")
KNOWN = (*NEEDED, "id", "problem_id", "gold", "kind", "origin", "source", "final_correct", "meta")


def labelled_steps(path: str | Path) -> Iterator[LabelledSteps]:
    """The labelled solutions in a file that ``stepmark prm convert`` wrote, one at a time.

    A file of your own needs the columns ``problem``, ``steps`` and ``labels`` only (one label per
    step: 1, 0, a number between, or null).

    Args:
        path: a file of JSON lines; one that ends in ``.gz`` is unpacked.

    Raises:
        DataError: there is no such file, or a line is no such row; it names line and reason.
    """
    reader = StepmarkRows()
    for line, row in Source(str(path)).rows():
        try:
            if isinstance(row, Rejected):
                raise row
            yield from reader.labelled(row)
        except Rejected as why:
            raise DataError(
                f"{path}, line {line}: {why}. This file must hold rows of stepmark prm convert; "
                "convert it first, or mend the line."
            ) from why


def write_labelled_steps(path: str | Path, rows: Iterable[LabelledSteps]) -> int:
    """How many rows were written; the file is complete, or as it was before."""
    written, writer = 0, StepmarkRows()
    with publish(Path(path)) as part, part.open("wb") as file:
        for row in rows:
            file.write(row_line(writer.write(row)))
            written += 1
    return written


class StepmarkRows:
    """The format ``stepmark``: what `labelled_steps` reads."""

    name: ClassVar[str] = "stepmark"

    @staticmethod
    def matches(row: Row) -> bool:
        """A problem as text, steps and labels as lists."""
        lists = isinstance(row.get("steps"), list) and isinstance(row.get("labels"), list)
        return lists and isinstance(row.get("problem"), str)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The one solution in a row."""
        yield from self.labelled(row)

    def labelled(self, row: Row) -> Iterator[LabelledSteps]:
        """The one solution in a row.

        Raises:
            Rejected: a column is missing, or holds what it must not.
        """
        text = need_text(row, "problem")
        steps = text_list(row, "steps")
        labels, kind = label_list(row.get("labels"), len(steps))
        meta = row.get("meta") or {}
        if not isinstance(meta, Mapping):
            raise Rejected(RejectReason.COLUMN, f"meta is {meta!r:.60}, not an object")
        yield LabelledSteps(
            Problem(_text(row, "problem_id") or problem_id(text), text, _text(row, "gold")),
            steps,
            labels,
            kind=_kind(row, kind),
            origin=_text(row, "origin") or "",
            source=_text(row, "source") or "",
            final_correct=_claim(row, "final_correct"),
            meta={**meta, **{key: row[key] for key in row if key not in KNOWN}},
        )

    def write(self, labelled: LabelledSteps) -> dict[str, Any]:
        """The row that `read` makes into the same solution."""
        problem, hard = labelled.problem, labelled.kind == "hard"
        return {
            "id": row_id(problem.text, labelled.steps),
            "problem_id": problem.id,
            "problem": problem.text,
            "gold": problem.gold,
            "steps": list(labelled.steps),
            "labels": [
                None if label is None else int(label) if hard else float(label)
                for label in labelled.labels
            ],
            "kind": labelled.kind,
            "origin": labelled.origin,
            "source": labelled.source,
            "final_correct": labelled.final_correct,
            "meta": dict(labelled.meta),
        }


def row_line(row: Row) -> bytes:
    """A row as one line of JSON.

    Half a surrogate pair, which UTF-8 cannot hold, is escaped. NaN becomes null, and what JSON has
    no word for (the dates of tables) its text: neither stands in labels.
    """
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(_plain(row), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def problem_id(text: str) -> str:
    r"""Sixteen hexadecimal digits of the problem's text, equal however its blanks are set.

    >>> problem_id("What is 1 + 1?") == problem_id(" What is\n1 + 1? ")
    True
    """
    return text_hash(" ".join(text.split()))


def row_id(problem: str, steps: Iterable[str]) -> str:
    """Sixteen hexadecimal digits of problem and steps, equal however their blanks are set.

    Labels do not enter: two rows of one id say something of the same solution.
    """
    return text_hash("\x1f".join(" ".join(text.split()) for text in (problem, *steps)))


def _kind(row: Row, seen: LabelKind) -> LabelKind:
    kind = row.get("kind", seen)
    if kind not in ("hard", "soft"):
        raise Rejected(RejectReason.COLUMN, f"kind is {kind!r:.40}; it is hard or soft")
    if kind == "hard" and seen == "soft":
        labels = [label for label in row["labels"] if label not in (0, 1, None)]
        if labels:
            raise Rejected(RejectReason.LABEL_VALUE, f"a hard label is {labels[0]!r}, not 0 or 1")
    return kind


def _text(row: Row, name: str) -> str | None:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    raise Rejected(RejectReason.COLUMN, f"{name} is {value!r:.60}, not text")


def _claim(row: Row, name: str) -> bool | None:
    value = row.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise Rejected(RejectReason.COLUMN, f"{name} is {value!r:.60}, not true, false or null")
