"""What a replay buffer keeps of one labelled solution, and who made and labelled it.

A line of a shard is a row of ``stepmark prm convert`` with one column more::

    {"id": "1466dd97450f01b8", "problem": "1 + 1?", "steps": ["1 + 1 = 3"], "labels": [0], ...,
     "replay": {"round": 2, "split": "train", "policy_id": "policy@400",
                "sampling": {"temperature": 1.0},
                "annotator": {"kind": "mc", "version": "1", "n_rollouts": 8,
                              "completer_id": "policy@400"},
                "origin": "rollouts"}}

so that every verb that reads such rows reads a shard. ``id`` is a hash of problem and steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from stepmark.prm.data import WRONG_BELOW
from stepmark.prm.formats.rows import StepmarkRows, problem_id, row_id
from stepmark.store import text_hash
from stepmark.types import LabelledSteps

__all__ = ["Annotator", "Entry", "Provenance", "Record", "Split", "Stratum", "near_id"]

Split = Literal["train", "held_out"]

BUCKETS = (2, 4, 8, 16)
"""Upper ends of the buckets by number of steps; the last one is open."""


@dataclass(frozen=True, slots=True)
class Annotator:
    """Who said which steps are right."""

    kind: str = ""
    """``rule``, ``mc``, ``binary``, ``outcome`` or ``human``; empty where that is not known."""
    version: str = ""
    n_rollouts: int | None = None
    """Completions from each prefix, where labels are estimates."""
    completer_id: str = ""
    """Which weights drew those completions."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the rows of one round come from; all of it is for the record, nothing depends on it."""

    policy_id: str = ""
    """Which weights wrote the solutions: a hash of them, or ``name@step``."""
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """``temperature``, ``top_p``, ``max_tokens``, ``seed``."""
    annotator: Annotator = field(default_factory=Annotator)
    origin: str = ""
    """In words: ``rollouts``, or the name of a file."""

    def to_row(self) -> dict[str, Any]:
        """What a line of a shard says of it."""
        known = {name: getattr(self, name) for name in Provenance.__slots__}
        annotator = {name: getattr(self.annotator, name) for name in Annotator.__slots__}
        return {**known, "annotator": annotator}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Provenance:
        """What a line says of itself; columns of later versions are ignored."""
        known = {name: row[name] for name in cls.__slots__ if name in row}
        given = dict(known.pop("annotator", {}))
        annotator = Annotator(**{k: v for k, v in given.items() if k in Annotator.__slots__})
        return cls(**known, annotator=annotator)


class Stratum(NamedTuple):
    """Rows that a draw treats alike."""

    round: int
    has_error: bool
    steps: str
    """Bucket of the number of steps, such as ``3-4``."""
    source: str


@dataclass(frozen=True, slots=True)
class Record:
    """One labelled solution of one round."""

    row: LabelledSteps
    round: int
    split: Split
    provenance: Provenance

    @property
    def id(self) -> str:
        """Hash of problem and steps, equal however their blanks are set."""
        return row_id(self.row.problem.text, self.row.steps)

    def to_row(self) -> dict[str, Any]:
        """The line of a shard."""
        more = {"round": self.round, "split": self.split, **self.provenance.to_row()}
        return {**StepmarkRows().write(self.row), "replay": more}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Record:
        """The record that `to_row` wrote.

        Raises:
            Rejected: it is no such row.
        """
        more = row["replay"]
        plain = {key: value for key, value in row.items() if key != "replay"}
        (labelled,) = StepmarkRows().labelled(plain)
        return cls(labelled, int(more["round"]), more["split"], Provenance.from_row(more))


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the index: where a record lies, and all that admission and draws go by."""

    id: str
    round: int
    split: Split
    problem: str
    """Id of the problem."""
    near: str
    """Equal for solutions that differ in case, blanks or closing punctuation only."""
    labels: str
    """Hash of the labels."""
    has_error: bool
    steps: int
    source: str
    shard: str
    offset: int
    length: int
    """Bytes of the line."""

    @classmethod
    def of(cls, record: Record, shard: str = "", offset: int = 0, length: int = 0) -> Entry:
        """The line of a record that lies there."""
        row = record.row
        return cls(
            id=record.id,
            round=record.round,
            split=record.split,
            problem=problem_id(row.problem.text),
            near=near_id(row),
            labels=labels_id(row),
            has_error=has_error(row),
            steps=len(row.steps),
            source=row.source,
            shard=shard,
            offset=offset,
            length=length,
        )

    def to_row(self) -> dict[str, Any]:
        """The line."""
        return {name: getattr(self, name) for name in Entry.__slots__}

    @property
    def stratum(self) -> Stratum:
        """Which rows a draw treats like this one."""
        return Stratum(self.round, self.has_error, bucket(self.steps), self.source)


def has_error(row: LabelledSteps) -> bool:
    """Whether a label says that a step is wrong; an estimate below one half counts as that."""
    return any(label is not None and label < WRONG_BELOW for label in row.labels)


def labels_id(row: LabelledSteps) -> str:
    """Sixteen hexadecimal digits that change with a label, not with 1 for 1.0."""
    plain = [None if label is None else float(label) for label in row.labels]
    return text_hash(json.dumps([row.kind, plain]))


def near_id(row: LabelledSteps) -> str:
    """Sixteen hexadecimal digits of problem and steps without case, blanks, closing punctuation.

    Digits and operators are kept: ``3 + 4`` and ``3 - 4`` are two solutions.
    """
    texts = (row.problem.text, *row.steps)
    return text_hash("\x1f".join("".join(t.casefold().split()).rstrip(".;,:!") for t in texts))


def bucket(steps: int) -> str:
    """The bucket of a number of steps.

    >>> [bucket(n) for n in (1, 2, 3, 9, 40)]
    ['1-2', '1-2', '3-4', '9-16', '17+']
    """
    low = 1
    for high in BUCKETS:
        if steps <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"
