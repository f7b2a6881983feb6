"""Recorded responses: rows of any layout as completions to mark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import DataError
from stepmark.store import RunFolder, Sample
from stepmark.types import Verdict

from .cells import cell_at, finish_of, problem_text, texts_of
from .columns import Columns, find_columns
from .layouts import laid_out
from .lines import Line, Reject, read_lines, short

__all__ = ["Columns", "Recorded", "Recording", "Reject", "find_columns", "read_recorded"]

LABEL_WORDS = {
    **dict.fromkeys(("true", "yes", "correct", "right", "1", "1.0", "pass", "+"), True),
    **dict.fromkeys(("false", "no", "incorrect", "wrong", "0", "0.0", "-1", "fail", "-"), False),
}


class Recorded(NamedTuple):
    """One recorded completion."""

    sample: Sample
    group: str
    label: bool | None
    line: int = 0
    """Where it was read, for messages."""
    file: str = ""

    @property
    def name(self) -> tuple[str, str, int]:
        """Group, id and k: what names it among the rows of its file."""
        return (self.group, self.sample.id, self.sample.k)


@dataclass(frozen=True, slots=True)
class Recording:
    """All of a file: what can be marked, what cannot, and how the columns were read."""

    rows: list[Recorded] = field(repr=False)
    rejects: list[Reject] = field(repr=False)
    announcement: str
    """One line on the columns."""
    columns: frozenset[str]
    label: str = "recorded"
    """What the labels are, for tables: a column, another verifier."""


def read_recorded(
    place: str, columns: Columns | None = None, *, needs_gold: bool = True
) -> Recording:
    """Recorded responses from a file or a folder of files, a hub id or a run folder.

    The layouts of verl, TRL, lm-eval, lighteval and OpenAI are known by their columns. A cell that
    holds a list gives one completion per entry, with the place in the list as ``k``; lists in it
    are unfolded; of a chat the last reply is taken.

    Args:
        place: path or hub id.
        columns: those that are named.
        needs_gold: False where the golds come from elsewhere.

    Raises:
        DataError: the file cannot be read, a column is missing or ambiguous, or no row is usable.
    """
    path = Path(place)
    for folder in (path, path.parent):
        if (folder / "config.toml").is_file() and path in (folder, folder / "samples"):
            return _of_run(folder)
    lines, rejects = read_lines(place)
    layout, laid = laid_out(lines, _names(lines))
    names = _names(laid.lines)
    if not laid.lines and (lines or rejects):
        raise _nothing_usable(place, [*rejects, *laid.rejects])
    given = columns or Columns()
    inner = _inner_names(laid.lines, names)
    found, guessed = find_columns(names, given, laid.known, needs_gold=needs_gold, inner=inner)
    rejects = [*rejects, *laid.rejects]
    tally = Tally(keeps_k=layout == "stepmark")
    rows: list[Recorded] = []
    for line in laid.lines:
        try:
            rows += _of_row(line, found, tally)
        except ValueError as error:
            rejects.append(Reject(line.number, str(error), short(line.row), line.file))
    if not rows:
        raise _nothing_usable(place, rejects)
    rejects.sort(key=lambda reject: (reject.file, reject.line))
    told = " ".join(filter(None, (layout and f"Layout {layout}.", guessed, laid.note, str(tally))))
    label = given.label or ("recorded" if layout == "" else found.label)
    return Recording(rows, rejects, told, frozenset(names), label or "recorded")


def _names(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.row))


def _inner_names(lines: Sequence[Line], names: Sequence[str]) -> list[str]:
    """Names with a dot, for cells that hold objects; a thousand rows tell them all."""
    found = {
        f"{name}.{key}": None
        for line in lines[:1000]
        for name in names
        if isinstance(cell := line.row.get(name), Mapping)
        for key in cell
    }
    return list(found)


def _nothing_usable(place: str, rejects: Sequence[Reject]) -> DataError:
    why = f" The first: line {rejects[0].line}: {rejects[0].reason}." if rejects else ""
    return DataError(f"{place!r} holds no row that can be marked.{why} Nothing was written.")


@dataclass(slots=True)
class Tally:
    """What was counted on the way through the rows."""

    keeps_k: bool = False
    """The rows have places of their own in their groups."""
    samples: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """By group and id."""
    partial: int = 0
    """Labels between 0 and 1."""
    unread: int = 0
    """Labels that are neither right nor wrong."""

    def label(self, value: Any) -> bool | None:
        """A recorded verdict; None where it says neither.

        Of a score, full marks are correct and anything less is not, as for our own verdicts.
        """
        found = _label(value)
        is_score = isinstance(value, float) and 0 < value < 1
        self.partial += is_score
        self.unread += found is None and value not in (None, "")
        return found

    def __str__(self) -> str:
        """What people should know of the labels; empty where that is nothing."""
        counts = {
            "Labels between 0 and 1, which count as wrong": self.partial,
            "Labels that say neither right nor wrong": self.unread,
        }
        return " ".join(f"{words}: {number:,}." for words, number in counts.items() if number)


def _of_row(line: Line, columns: Columns, tally: Tally) -> Iterator[Recorded]:
    """The completions of a row; all of it is checked before the first one is counted."""
    row = line.row
    try:
        texts = texts_of(cell_at(row, columns.completion))
    except ValueError as error:
        raise ValueError(f"the completion ({columns.completion}) is {error}") from error
    golds = _spread(cell_at(row, columns.gold), len(texts), columns.gold)
    labels = _spread(cell_at(row, columns.label), len(texts), columns.label)
    read = [(_gold(gold), tally.label(label)) for gold, label in zip(golds, labels, strict=True)]
    value = cell_at(row, columns.group)
    group = "" if value is None else f"step {value}" if columns.group == "step" else str(value)
    id = _id(cell_at(row, columns.id), line)
    problem = problem_text(cell_at(row, columns.problem))
    finish = finish_of(row.get("finish") or row.get("finish_reason"))
    for text, (gold, label) in zip(texts, read, strict=True):
        k = tally.samples.get((group, id), 0)
        tally.samples[group, id] = k + 1
        if tally.keeps_k and isinstance(row["k"], int):
            k = row["k"]
        sample = Sample(
            id=id,
            k=k,
            step=0,
            problem=problem,
            prompt="",
            completion=text,
            ids=None,
            logps=None,
            finish=finish,  # type: ignore[arg-type]
            gold=gold,
            meta=row,
            policy=group,
        )
        yield Recorded(sample, group, label, line.number, line.file)


def _id(value: Any, line: Line) -> str:
    if value is None or value == "":
        return f"{line.file}:line-{line.number}" if line.file else f"line-{line.number}"
    return str(value)


def _of_run(path: Path) -> Recording:
    """The completions of a run, with its own verdicts as labels where it has any."""
    folder = RunFolder.open(path)
    known = folder.samples.verdict_keys()
    own = folder.config().get("verifier")
    key = own if isinstance(own, str) else (known[0] if known else "")
    verdicts: Mapping[Any, Verdict] = folder.samples.verdicts(key) if key else {}
    samples = list(folder.samples.rows())
    if not samples:
        raise DataError(f"The run {str(path)!r} holds no completions yet. Let it make some first.")
    steps = len({sample.step for sample in samples}) > 1
    rows = []
    for sample in samples:
        verdict = verdicts.get(sample.key)
        group = f"step {sample.step}" if steps else sample.policy
        rows.append(Recorded(sample, group, verdict and verdict.correct))
    columns = frozenset(name for row in rows for name in row.sample.meta)
    labelled = sum(row.label is not None for row in rows)
    told = f"{path}: {len(rows):,} completions of a run; {labelled:,} verdicts of {key or 'nobody'}"
    return Recording(rows, [], f"{told} are the labels.", columns, key or "recorded")


def _unfolded(cell: Any) -> list[Any]:
    """The entries of a list and of the lists in it."""
    if isinstance(cell, list | tuple):
        return [entry for part in cell for entry in _unfolded(part)]
    return [cell]


def _spread(cell: Any, size: int, column: str | None) -> list[Any]:
    """One entry per completion: a list of as many, or the same for all."""
    if isinstance(cell, list | tuple):
        entries = _unfolded(cell)
        if len(entries) == size:
            return entries
        if len(entries) != 1:
            raise ValueError(f"{column} holds {len(entries)} entries for {size} completions")
        cell = entries[0]
    return [cell] * size


def _gold(value: Any) -> str | None:
    """A gold as text; none at all is the verifier's to judge."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the gold is {short(value)}, not a text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _label(value: Any) -> bool | None:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return None if math.isnan(value) or value > 1 else value == 1
    return LABEL_WORDS.get(str(value).strip().lower())
