"""Golds from a task, for recorded responses that came without: joined by id, place or question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import DataError, did_you_mean
from stepmark.registry import Reference
from stepmark.tasks import load_dataset_task, load_task
from stepmark.tasks.task import LoadedTask
from stepmark.types import Problem

from .cells import cell_at, problem_text
from .lines import Reject, short
from .recorded import Recorded, Recording

__all__ = ["join_golds", "load_golds"]

WINDOW_CHARS = 24
"""A question is looked for in a prompt by so many of its first characters."""

PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-"})
"""Signs that one copy of a data set has and another has not."""


class Join(NamedTuple):
    """One way of finding the problem of a row."""

    words: str
    """What is compared, for people."""
    find: Callable[[Any], Problem | str]
    """The problem of a cell, or why it has none."""


def load_golds(reference: str) -> LoadedTask:
    """The task that golds come from: a name with settings, or a file of one's own.

    Its split is ``test`` unless the settings name one: ``gsm8k?split=train``.
    """
    if Path(reference.rpartition(":")[0] or reference).exists() or Path(reference).exists():
        return load_dataset_task(reference)
    asked = Reference.parse(reference)
    settings = dict(asked.settings)
    split = str(settings.pop("split", "test"))
    return load_task(Reference(asked.name, settings), split)


def join_golds(recording: Recording, task: LoadedTask, column: str) -> Recording:
    """The recording with the golds of the task; rows without a problem there become rejects.

    The column holds ids of the task's problems (or of its rows), places in it from 0, questions, or
    whole prompts in which the question stands: what fits most of the rows is taken, and announced.
    A row that is joined by id or place and asks something else than the task does is rejected.

    Raises:
        DataError: there is no such column, or no row fits.
    """
    cells = [_cell(row, column) for row in recording.rows]
    if all(cell is None for cell in cells):
        names = sorted(recording.columns)
        hint = did_you_mean(column, names)
        raise DataError(
            f"There is no column {column!r} to join on. {hint}{' ' if hint else ''}"
            f"The columns are: {', '.join(names)}. Say which one: --join-on NAME."
        )
    join = _best(_joins(task), cells)
    rows: list[Recorded] = []
    rejects: list[Reject] = []
    for row, cell in zip(recording.rows, cells, strict=True):
        found = join.find(cell)
        if isinstance(found, Problem) and (why := _differs(row, found)):
            found = why
        if isinstance(found, str):
            rejects.append(Reject(row.line, found, short(row.sample.meta), row.file))
            continue
        problem = row.sample.problem or found.text
        sample = replace(row.sample, gold=found.gold, problem=problem)
        rows.append(row._replace(sample=sample))
    if not rows:
        raise _nothing_joined(task, column, cells, rejects)
    told = f"Golds from {task.name}/{task.split}, {column!r} being its {join.words}: "
    told += f"{len(rows):,} of {len(cells):,} rows."
    everything = sorted([*recording.rejects, *rejects], key=lambda r: (r.file, r.line))
    announcement = f"{recording.announcement} {told}"
    return replace(recording, rows=rows, rejects=everything, announcement=announcement)


def _cell(row: Recorded, column: str) -> Any:
    found = cell_at(row.sample.meta, column)
    if found is None and column in ("id", "problem", "prompt"):
        found = getattr(row.sample, column) or None
    return found


def _nothing_joined(
    task: LoadedTask, column: str, cells: Sequence[Any], rejects: Sequence[Reject]
) -> DataError:
    some = next((cell for cell in cells if cell is not None), None)
    return DataError(
        f"No row can be joined with {task.name}/{task.split}: {column!r} holds {short(some)}, and "
        f"the task has ids such as {task.problems[0].id!r}. The first row: {rejects[0].reason}. "
        "Name a column of ids, of places from 0 or of questions: --join-on NAME."
    )


def _joins(task: LoadedTask) -> list[Join]:
    ids: dict[str, Problem] = {}
    for name in ("id", "unique_id", "question_id", "problem_id"):
        own = [str(p.meta[name]) for p in task.problems if p.meta.get(name) is not None]
        if len(set(own)) == len(task.problems):
            ids |= dict(zip(own, task.problems, strict=True))
    ids |= {problem.id: problem for problem in task.problems}
    places = {str(place): problem for place, problem in enumerate(task.problems)}
    return [
        Join("id", _by(ids, f"{task.name}/{task.split} has no id")),
        Join("place from 0", _by(places, f"{task.name}/{task.split} has no problem at place")),
        Join("question", _Questions(task).find),
    ]


def _by(known: Mapping[str, Problem], why: str) -> Callable[[Any], Problem | str]:
    def find(cell: Any) -> Problem | str:
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        return known.get(str(cell), f"{why} {short(cell)}")

    return find


class _Questions:
    """Finds the question of a task that a cell is, or that stands last in a longer prompt."""

    def __init__(self, task: LoadedTask) -> None:
        self.place = f"{task.name}/{task.split}"
        self.known: dict[str, list[Problem]] = {}
        for problem in task.problems:
            self.known.setdefault(_folded(problem.text), []).append(problem)
        self.window = min(WINDOW_CHARS, min(map(len, self.known), default=1)) or 1
        self.starts: dict[str, list[str]] = {}
        for text in self.known:
            self.starts.setdefault(text[: self.window], []).append(text)
        self.seen: dict[str, Problem | str] = {}

    def find(self, cell: Any) -> Problem | str:
        text = _folded(problem_text(cell))
        if text not in self.seen:
            self.seen[text] = self._look(text)
        return self.seen[text]

    def _look(self, text: str) -> Problem | str:
        if not text:
            return "there is no question to look for"
        found = self.known.get(text) or self.known.get(self._last_in(text))
        if not found:
            return f"{self.place} has no question that stands in {short(text)}"
        if len({problem.gold for problem in found}) > 1:
            return f"{self.place} has {len(found)} problems with this question, and other golds"
        return found[0]

    def _last_in(self, text: str) -> str:
        """The question that ends last in a prompt: those before it are examples."""
        best, end = "", -1
        for at in range(len(text) - self.window + 1):
            for question in self.starts.get(text[at : at + self.window], ()):
                there = at + len(question)
                if text.startswith(question, at) and (there, len(question)) > (end, len(best)):
                    best, end = question, there
        return best


def _folded(text: str) -> str:
    return " ".join(text.translate(PLAIN).split())


def _letters(text: str) -> str:
    return "".join(sign for sign in text.casefold() if sign.isalnum())


def _best(joins: Sequence[Join], cells: Sequence[Any]) -> Join:
    """The way that finds most; of equals the first."""
    some = cells if len(cells) <= 2000 else cells[:: len(cells) // 1000]
    found = [sum(isinstance(join.find(cell), Problem) for cell in some) for join in joins]
    return joins[found.index(max(found))]


def _differs(row: Recorded, problem: Problem) -> str:
    """Why a row is not of this problem, where both have a text and neither holds the other."""
    ours, theirs = _letters(row.sample.problem), _letters(problem.text)
    if not ours or not theirs or theirs in ours or ours in theirs:
        return ""
    return f"it asks {short(row.sample.problem)}, and {problem.id} asks {short(problem.text)}"
