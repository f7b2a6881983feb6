"""Scores of an evaluation on the disk: what stands there is not worked out again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stepmark.errors import RunError
from stepmark.protocols import StepScorer
from stepmark.store import append_rows, publish, read_rows
from stepmark.types import LabelledSteps, StepItem

from .cache import item_digest
from .eval_rows import EvalRows
from .evaluate import Scored, score_rows
from .formats import row_id

__all__ = ["SCORES", "ScoreFile"]

SCORES = "scores.jsonl"
AT_ONCE = 64
"""Solutions between two writes."""

Key = tuple[str, str, str]
"""The scorer's key, the hash of the data, the digest of problem and steps."""


class ScoreFile:
    """``scores.jsonl``: one row per scorer and solution, in a folder or nowhere.

    ::

        {"data": "processbench-gsm8k", "data_hash": "...", "scorer": "arithmetic@1", "row": "...",
         "text": "...", "first_error": 1, "scores": [1.0, 0.0], "prediction": 1}

    ``prediction`` is there once the evaluation is done: a threshold may be fitted on all scores. It
    is null for a solution without a score. One on which the scorer failed is not in the file, so
    that it is asked again.

    Args:
        folder: of the evaluation; None keeps nothing.

    Raises:
        RunError: the file was altered.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / SCORES
        self._rows: dict[Key, dict[str, Any]] = {}
        for number, row in enumerate([] if self.path is None else read_rows(self.path), 1):
            if not isinstance(row.get("scores"), list) or not {"scorer", "data_hash", "text"} <= {
                *row
            }:
                raise RunError(
                    f"{self.path}, row {number} has no scores or does not say of what: the file "
                    "was altered. Restore it, or choose another --out."
                )
            self._rows[row["scorer"], row["data_hash"], row["text"]] = row

    def scored(
        self,
        scorer: StepScorer,
        data: EvalRows,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Scored]:
        """Every row with its scores; new ones are on the disk as soon as they are there.

        Raises:
            DataError: the scorer gives another number of scores than there are steps.
        """
        keys = [_key(scorer.key, data, row) for row in data.rows]
        new = [n for n, key in enumerate(keys) if key not in self._rows]
        failed: dict[Key, Scored] = {}
        total = len(keys)
        for start in range(0, len(new), AT_ONCE):
            places = new[start : start + AT_ONCE]
            if on_progress:
                on_progress(total - len(new) + start, total)
            found = list(score_rows(scorer, [data.rows[n] for n in places]))
            pairs = [(keys[n], one) for n, one in zip(places, found, strict=True)]
            failed |= {key: one for key, one in pairs if one.failed}
            self._add((key, _row(key, data, one)) for key, one in pairs if not one.failed)
        if on_progress:
            on_progress(total, total)
        return [
            Scored(row, tuple(self._rows[key]["scores"])) if key in self._rows else failed[key]
            for key, row in zip(keys, data.rows, strict=True)
        ]

    def predicted(
        self, scorer: StepScorer, data: EvalRows, predictions: Iterable[int | None]
    ) -> None:
        """Note what a scorer calls the first error of each row, and write the file."""
        for row, said in zip(data.rows, predictions, strict=True):
            if (key := _key(scorer.key, data, row)) in self._rows:
                self._rows[key]["prediction"] = said
        if self.path is not None:
            with publish(self.path) as part, part.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in self._rows.values())

    def _add(self, found: Iterable[tuple[Key, dict[str, Any]]]) -> None:
        fresh = dict(found)
        self._rows |= fresh
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_rows(self.path, fresh.values())


def _key(scorer: str, data: EvalRows, row: LabelledSteps) -> Key:
    return scorer, data.digest, item_digest(StepItem(row.problem, row.steps))


def _row(key: Key, data: EvalRows, one: Scored) -> dict[str, Any]:
    scorer, digest, text = key
    return {
        "data": data.name,
        "data_hash": digest,
        "scorer": scorer,
        "row": row_id(one.row.problem.text, one.row.steps),
        "text": text,
        "first_error": one.row.first_error,
        "scores": list(one.scores),
    }
