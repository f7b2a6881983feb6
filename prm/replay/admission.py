"""Which rows of a round a replay buffer takes, and why it refuses the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from stepmark.prm.data import is_held_out
from stepmark.prm.formats.rows import StepmarkRows, problem_id, row_id
from stepmark.types import LabelledSteps

from .records import Entry, Provenance, Record, has_error, labels_id, near_id

__all__ = ["Admission", "AdmissionReport", "admit"]

Conflict = dict[str, Any]
"""A line of ``conflicts.jsonl``: ``id``, ``round``, ``kept`` and ``replaced``."""


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """What became of the rows that were given for one round; nothing disappears uncounted."""

    round: int
    given: int
    train: int = 0
    """Admitted, and learnt from."""
    held_out: int = 0
    """Admitted, and examined on: their problem says so, see `stepmark.prm.data.is_held_out`."""
    rejected: Mapping[str, int] = field(default_factory=dict[str, int])
    """By reason: ``unlabelled``, ``unfinished``, ``empty step``, ``duplicate``,
    ``near-duplicate``, ``beyond the cap of the problem``, ``replaced in this round``."""
    conflicts: int = 0
    """Solutions that were labelled twice and differently: the newer labels are kept, and both are
    in ``conflicts.jsonl``."""
    is_repeat: bool = False
    """Whether the buffer held this round with these rows already; then nothing was written."""

    @property
    def admitted(self) -> int:
        """Rows that are in the buffer now."""
        return self.train + self.held_out

    def to_row(self) -> dict[str, Any]:
        """The report as plain values."""
        return {key: value for key, value in asdict(self).items() if key != "is_repeat"}


class Admission(NamedTuple):
    """The rows that are taken, in the order in which they were given."""

    records: list[Record]
    conflicts: list[Conflict]
    report: AdmissionReport


def admit(
    rows: Sequence[LabelledSteps],
    round: int,
    provenance: Provenance,
    known: Iterable[Entry],
    *,
    held_out: float,
    cap: int,
) -> Admission:
    """What a buffer takes of a round: a pure function of the rows and of earlier rounds.

    Refused are rows without a label, those that ``meta`` calls unfinished (``finish`` is
    ``length``) or that hold an empty step, solutions that are there with the same labels, and what
    exceeds the cap of a problem, where rows with right and wrong labels go first. A solution that
    is there with other labels is taken: the newer annotation counts from now on.

    Args:
        rows: of the round.
        round: its number.
        provenance: of the rows.
        known: the records of earlier rounds that count.
        held_out: share of the problems whose rows are never learnt from.
        cap: most rows of a problem in a round.
    """
    earlier = list(known)
    rejected: Counter[str] = Counter()
    conflicts: list[Conflict] = []
    whole = [row for row in rows if not _refused(row, rejected)]
    single = _without_twins(whole, round, rejected, conflicts)
    fresh = _against_earlier(single, earlier, round, rejected, conflicts)
    kept = _capped(fresh, cap, rejected)
    records = [
        Record(
            row,
            round,
            "held_out" if is_held_out(row.problem.text, held_out) else "train",
            provenance,
        )
        for row in kept
    ]
    train = sum(record.split == "train" for record in records)
    report = AdmissionReport(
        round,
        len(rows),
        train,
        len(records) - train,
        dict(sorted(rejected.items())),
        len(conflicts),
    )
    return Admission(records, conflicts, report)


def _refused(row: LabelledSteps, rejected: Counter[str]) -> bool:
    """Whether nothing can be learnt from the row as it is."""
    why = ""
    if all(label is None for label in row.labels):
        why = "unlabelled"
    elif row.meta.get("finish") == "length" or row.meta.get("truncated") is True:
        why = "unfinished"
    elif not all(step.strip() for step in row.steps):
        why = "empty step"
    if why:
        rejected[why] += 1
    return bool(why)


def _without_twins(
    rows: Sequence[LabelledSteps], round: int, rejected: Counter[str], conflicts: list[Conflict]
) -> list[LabelledSteps]:
    """Each solution once; of two that are labelled differently the later one."""
    found: dict[str, LabelledSteps] = {}
    near: set[tuple[str, str]] = set()
    for row in rows:
        key = row_id(row.problem.text, row.steps)
        twin = found.get(key)
        if twin is not None:
            if labels_id(twin) == labels_id(row):
                rejected["duplicate"] += 1
                continue
            rejected["replaced in this round"] += 1
            conflicts.append(_conflict(row, round, twin.labels, round))
        elif (mark := (near_id(row), labels_id(row))) in near:
            rejected["near-duplicate"] += 1
            continue
        else:
            near.add(mark)
        found[key] = row
    return list(found.values())


def _against_earlier(
    rows: Sequence[LabelledSteps],
    earlier: Sequence[Entry],
    round: int,
    rejected: Counter[str],
    conflicts: list[Conflict],
) -> list[LabelledSteps]:
    """Rows that earlier rounds do not hold with the same labels."""
    by_id = {entry.id: entry for entry in earlier}
    near = {(entry.near, entry.labels) for entry in earlier}
    found: list[LabelledSteps] = []
    for row in rows:
        entry = by_id.get(row_id(row.problem.text, row.steps))
        if entry is not None and entry.labels == labels_id(row):
            rejected["duplicate"] += 1
        elif entry is None and (near_id(row), labels_id(row)) in near:
            rejected["near-duplicate"] += 1
        else:
            if entry is not None:
                conflicts.append(_conflict(row, round, None, entry.round))
            found.append(row)
    return found


def _capped(rows: Sequence[LabelledSteps], cap: int, rejected: Counter[str]) -> list[LabelledSteps]:
    """At most so many rows of a problem: those with labels of both kinds first, then by hash."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(problem_id(row.problem.text), []).append(place)

    def rank(place: int) -> tuple[bool, str]:
        row = rows[place]
        right = any(label is not None and label >= 0.5 for label in row.labels)
        return not (right and has_error(row)), row_id(row.problem.text, row.steps)

    kept = {place for own in places.values() for place in sorted(own, key=rank)[:cap]}
    if len(kept) < len(rows):
        rejected["beyond the cap of the problem"] += len(rows) - len(kept)
    return [row for place, row in enumerate(rows) if place in kept]


def _conflict(row: LabelledSteps, round: int, old: Any, of_round: int) -> Conflict:
    """Both annotations; those of an earlier round are read from the buffer by who writes them."""
    return {
        "id": row_id(row.problem.text, row.steps),
        "round": round,
        "kept": StepmarkRows().write(row),
        "replaced": {"round": of_round, "labels": None if old is None else list(old)},
    }
