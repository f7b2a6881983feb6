"""Recorded responses: rows of any layout as completions to mark."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import DataError, did_you_mean
from stepmark.store import Sample
from stepmark.tasks.readers import read_table

from .compare import graded_of

__all__ = ["Columns", "Recorded", "Reject", "read_recorded"]

COMPLETION = ("completion", "response", "responses", "output", "generated_text", "resps")
GOLD = ("gold", "ground_truth", "gts", "target", "solution", "answer")
LABEL = ("is_correct", "correct", "label")
GROUP = ("model",)
ID = ("id", "question_id", "problem_id", "doc_id", "unique_id")
PROBLEM = ("problem", "question", "prompt", "input")
LABEL_WORDS = {
    **dict.fromkeys(("true", "yes", "correct", "right", "1", "1.0", "pass", "+"), True),
    **dict.fromkeys(("false", "no", "incorrect", "wrong", "0", "0.0", "fail", "-"), False),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns; None is guessed where it can be, and else does without."""

    completion: str | None = None
    gold: str | None = None
    label: str | None = None
    """Holds a recorded verdict to compare with."""
    group: str | None = None
    """Rows are counted apart by it."""
    id: str | None = None
    problem: str | None = None


class Reject(NamedTuple):
    """A row that could not be used, and why."""

    line: int
    reason: str
    text: str


class Recorded(NamedTuple):
    """One recorded completion."""

    sample: Sample
    group: str
    label: bool | None


@dataclass(frozen=True, slots=True)
class Recording:
    """All of a file: what can be marked, what cannot, and how the columns were read."""

    rows: list[Recorded] = field(repr=False)
    rejects: list[Reject] = field(repr=False)
    announcement: str
    """One line on the columns."""
    columns: frozenset[str]


def read_recorded(place: str, columns: Columns | None = None) -> Recording:
    """Recorded responses from a file (jsonl, json, csv, parquet), a hub id or a run folder.

    A cell that holds a list gives one completion per entry, with the place in the list as ``k``; of
    an entry that is itself a list the first is taken.

    Raises:
        DataError: the file cannot be read, a column is missing or ambiguous, or no row is usable.
    """
    path = Path(place)
    if (path / "config.toml").is_file():
        return _of_run(path)
    lines, rejects = _lines(place)
    names = dict.fromkeys(name for _, row in lines for name in row)
    found, guessed = find_columns(list(names), columns or Columns())
    counts: dict[tuple[str, str], int] = {}
    rows: list[Recorded] = []
    for line, row in lines:
        try:
            rows += _of_row(row, line, found, counts)
        except ValueError as error:
            rejects.append(Reject(line, str(error), _short(row)))
    if not rows:
        why = f" The first: line {rejects[0].line}: {rejects[0].reason}." if rejects else ""
        raise DataError(f"{place!r} holds no row that can be marked.{why} Nothing was written.")
    rejects.sort()
    return Recording(rows, rejects, guessed, frozenset(names))


def find_columns(names: Sequence[str], given: Columns) -> tuple[Columns, str]:
    """Which column holds what, and one line that says so.

    A column of the first name (``completion``, ``gold``) is never ambiguous; of the other names
    there may be one.

    Raises:
        DataError: a named column is missing, or the completion or gold has no column or several.
    """
    if not names:
        raise DataError("The file holds no rows. Give one with at least one response.")

    def one(kind: str, asked: str | None, known: Sequence[str], *, needed: bool) -> str | None:
        if asked is not None:
            if asked in names:
                return asked
            raise DataError(
                f"There is no column {asked!r} for the {kind}. {did_you_mean(asked, names)} "
                f"The columns are: {', '.join(names)}."
            )
        found = [name for name in known if name in names]
        if len(found) <= 1 or found[0] == known[0]:
            if found or not needed:
                return found[0] if found else None
            problem = f"no column that is known to hold the {kind} ({', '.join(known)})"
        elif not needed:
            return found[0]
        else:
            problem = f"several candidates for the {kind}: {', '.join(found)}"
        raise DataError(
            f"The file has {problem}. The columns are: {', '.join(names)}. "
            f"Say which one: --{kind}-column NAME."
        )

    found = Columns(
        completion=one("completion", given.completion, COMPLETION, needed=True),
        gold=one("gold", given.gold, GOLD, needed=True),
        label=one("label", given.label, LABEL, needed=False),
        group=one("group", given.group, GROUP, needed=False),
        id=one("id", given.id, ID, needed=False),
        problem=one("problem", given.problem, PROBLEM, needed=False),
    )
    parts = [
        f"{kind} from {getattr(found, kind)!r}"
        for kind in Columns.__slots__
        if getattr(found, kind) is not None
    ]
    return found, f"Columns: {', '.join(parts)}."


def _lines(place: str) -> tuple[list[tuple[int, dict[str, Any]]], list[Reject]]:
    """Line number and row of each, and the lines that are no rows."""
    if not place.endswith((".jsonl", ".jsonl.gz")) or not Path(place).is_file():
        table = read_table(place)
        numbers = table.lines or range(1, len(table.rows) + 1)
        return list(zip(numbers, table.rows, strict=True)), []
    rows: list[tuple[int, dict[str, Any]]] = []
    rejects: list[Reject] = []
    try:
        with gzip.open(place, "rb") if place.endswith(".gz") else Path(place).open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"it holds a {type(row).__name__}, not an object")
                    rows.append((number, row))
                except (ValueError, RecursionError) as error:
                    text = line.decode("utf-8", "replace")
                    rejects.append(
                        Reject(number, f"not a JSON object: {error}", text[:200].rstrip())
                    )
    except (OSError, EOFError) as error:
        raise DataError(f"{place!r} cannot be read: {error}. Give a file that is whole.") from error
    return rows, rejects


def _of_row(
    row: Mapping[str, Any], line: int, columns: Columns, counts: dict[tuple[str, str], int]
) -> Iterator[Recorded]:
    """The completions of a row; all of it is checked before the first one is counted."""
    cell = row.get(columns.completion or "")
    texts = [_first(entry) for entry in cell] if isinstance(cell, list) else [cell]
    completions = [text for text in texts if isinstance(text, str)]
    if not texts or len(completions) < len(texts):
        raise ValueError(f"the completion ({columns.completion}) is {_short(cell)}, not a text")
    golds = _spread(row.get(columns.gold or ""), len(texts), columns.gold)
    labels = _spread(row.get(columns.label or ""), len(texts), columns.label)
    read = [(_gold(gold), _label(label)) for gold, label in zip(golds, labels, strict=True)]
    group = "" if columns.group is None else str(row.get(columns.group))
    id = str(row.get(columns.id or "", None) or f"line-{line}")
    problem = row.get(columns.problem or "")
    finish = next((row[k] for k in ("finish", "finish_reason") if k in row), None)
    for text, (gold, label) in zip(completions, read, strict=True):
        k = counts.get((group, id), 0)
        counts[group, id] = k + 1
        sample = Sample(
            id=id,
            k=k,
            step=0,
            problem=problem if isinstance(problem, str) else "",
            prompt="",
            completion=text,
            ids=None,
            logps=None,
            finish=finish if finish in ("stop", "length") else None,
            gold=gold,
            meta=row,
            policy=group,
        )
        yield Recorded(sample, group, label)


def _of_run(path: Path) -> Recording:
    """The completions of an evaluation, with its own verdicts as labels."""
    rows = [Recorded(sample, sample.policy, verdict.correct) for sample, verdict in graded_of(path)]
    columns = frozenset(name for row in rows for name in row.sample.meta)
    return Recording(rows, [], f"{path}: the run's own verdicts are the labels.", columns)


def _first(entry: Any) -> Any:
    return entry[0] if isinstance(entry, list) and len(entry) == 1 else entry


def _spread(cell: Any, size: int, column: str | None) -> list[Any]:
    """One entry per completion: a list of as many, or the same for all."""
    if isinstance(cell, list):
        if len(cell) == size:
            return cell
        if len(cell) != 1:
            raise ValueError(f"{column} holds {len(cell)} entries for {size} completions")
        cell = cell[0]
    return [cell] * size


def _gold(value: Any) -> str | None:
    """A gold as text; none at all is the verifier's to judge."""
    value = _first(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the gold is {_short(value)}, not a text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _label(value: Any) -> bool | None:
    """A recorded verdict; None where it says neither."""
    if isinstance(value, bool) or value is None:
        return value
    return LABEL_WORDS.get(str(value).strip().lower())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
