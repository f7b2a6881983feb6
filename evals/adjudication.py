"""What people decided about disagreements, read back and put in place of the labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import DataError

from .marked import MarkedRow
from .recorded import Recorded, Recording

__all__ = ["Adjudicated", "Adjudication", "adjudicate", "read_adjudications"]

WORDS: dict[Any, bool | None] = {
    True: True,
    False: False,
    None: None,
    "right": True,
    "wrong": False,
    "unsure": None,
}


class Adjudication(NamedTuple):
    """A person's word on one completion."""

    id: str
    k: int
    correct: bool | None
    """None is unsure: the row has no label then."""
    note: str = ""
    group: str | None = None
    """None where it was not said: id and k must be enough then."""


class Change(NamedTuple):
    """A row whose label an adjudication changed."""

    name: tuple[str, str, int]
    was: bool | None
    now: bool | None
    note: str

    def to_row(self, ours: bool | None) -> dict[str, Any]:
        """A row of ``changes.jsonl``."""
        group, id, k = self.name
        own = {"id": id, "k": k, "was": self.was, "now": self.now, "ours": ours, "note": self.note}
        return own | ({"group": group} if group else {})


@dataclass(frozen=True, slots=True)
class Adjudicated:
    """What became of the labels."""

    rows: int
    """Rows that were adjudicated."""
    unsure: int
    unknown: int
    """Adjudications of rows that the file does not hold."""
    changes: tuple[Change, ...]
    names: frozenset[tuple[str, str, int]]
    label: str
    """What the labels were before."""

    def told(self, marked: Sequence[MarkedRow], key: str) -> str:
        """Who was right, in a sentence for people."""
        was = {change.name: change.was for change in self.changes}
        own = [row for row in marked if row.recorded.name in self.names]
        decided = [row for row in own if row.recorded.label is not None]
        ours = sum(row.verdict.correct == row.recorded.label for row in decided)
        theirs = sum(row.recorded.name not in was for row in decided)
        unsure = f", {self.unsure} unsure" if self.unsure else ""
        unknown = f" {self.unknown} name no row of this file." if self.unknown else ""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        changed = "1 label" if len(self.changes) == 1 else f"{len(self.changes)} labels"
        return (
            f"Adjudicated: {rows}{unsure}. Of {len(decided)} decided, {key} had {ours} "
            f"right and {self.label} {theirs}; {changed} changed.{unknown}"
        )


def read_adjudications(path: Path) -> list[Adjudication]:
    """The rows that the page downloads: id, k, correct (true, false, null), note, group.

    Raises:
        DataError: the file cannot be read, or a row is none; it is named.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The adjudications {str(path)!r} cannot be read: {error}.") from error
    if path.name.endswith(".jsonl"):
        numbered = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [_adjudication(_json(line, f"{path}, line {n}"), path, n) for n, line in numbered]
    value = _json(text, str(path))
    rows = value.get("adjudications") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise DataError(f"{path}: holds no list of adjudications. Give what the page downloads.")
    return [_adjudication(row, path, n) for n, row in enumerate(rows, 1)]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error}). Give what the page downloads.") from error


def _adjudication(row: Any, path: Path, number: int) -> Adjudication:
    if isinstance(row, Mapping) and "id" in row and "correct" in row:
        correct, k, group = row["correct"], row.get("k", 0), row.get("group")
        is_known = isinstance(correct, str | bool | None) and correct in WORDS
        if is_known and isinstance(k, int):
            note = str(row.get("note") or "")
            return Adjudication(str(row["id"]), k, WORDS[correct], note, group)
    raise DataError(
        f"{path}, row {number}: {str(row)[:80]!r} is no adjudication. A row reads like "
        '{"id": "17", "k": 0, "correct": true, "note": ""}; correct is true, false or null.'
    )


def adjudicate(
    recording: Recording, decided: Sequence[Adjudication]
) -> tuple[Recording, Adjudicated]:
    """The recording with the adjudications as labels where there are any; the last word counts.

    Raises:
        DataError: none of them names a row of the recording.
    """
    places = _places(recording.rows)
    words: dict[tuple[str, str, int], Adjudication] = {}
    unknown = 0
    for one in decided:
        name = places.get((one.group, one.id, one.k))
        if name is None:
            unknown += 1
        else:
            words[name] = one
    if not words:
        some = f" The first is {decided[0].id!r}, k {decided[0].k}." if decided else ""
        raise DataError(
            f"None of the {len(decided)} adjudications names a row of this file.{some} "
            "Give those that were made from its page."
        )
    changes = []
    rows: list[Recorded] = []
    for row in recording.rows:
        one = words.get(row.name)
        if one is not None and one.correct != row.label:
            changes.append(Change(row.name, row.label, one.correct, one.note))
        rows.append(row if one is None else row._replace(label=one.correct))
    unsure = sum(one.correct is None for one in words.values())
    label = recording.label
    found = Adjudicated(len(words), unsure, unknown, tuple(changes), frozenset(words), label)
    return replace(recording, rows=rows, label=f"{label}, adjudicated"), found


def _places(rows: Sequence[Recorded]) -> dict[tuple[str | None, str, int], tuple[str, str, int]]:
    """Names as adjudications give them, with and, where that is enough, without the group."""
    found: dict[tuple[str | None, str, int], tuple[str, str, int]] = {}
    twice: set[tuple[str, int]] = set()
    for row in rows:
        _, id, k = row.name
        found[row.name] = row.name
        if (None, id, k) in found:
            twice.add((id, k))
        found[None, id, k] = row.name
    for id, k in twice:
        del found[None, id, k]
    return found
