"""What outcome reward models learn from: solutions that end right or wrong, and preferences."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from stepmark.errors import DataError
from stepmark.seeds import derive_seed
from stepmark.store import text_hash
from stepmark.types import Problem

from .data import is_held_out
from .encoding import Encoded, StepEncoder
from .formats import labelled_steps, problem_id, row_id
from .formats.rows import TEXTS
from .formats.source import Source
from .steps import solution_steps

__all__ = [
    "OutcomeRow",
    "Pair",
    "Solution",
    "encode_solutions",
    "limited",
    "pairs_of",
    "read_solutions",
    "solutions_of",
]

PREFERENCE = ("prompt", "chosen", "rejected")


class Solution(NamedTuple):
    """A solution, before it is encoded."""

    problem: str
    steps: tuple[str, ...]
    is_right: bool
    """Whether it ends right, or is the chosen one of its preference."""
    preference: int | None = None
    """Number of the preference that it belongs to; None for a solution by itself."""
    file: str = ""
    """That it was read from."""


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeRow:
    """An encoded solution in compact arrays."""

    prompt: np.ndarray
    ids: np.ndarray
    is_right: bool
    problem: str
    preference: int | None

    @property
    def encoded(self) -> Encoded:
        """The row as models take it; its only place is the last token."""
        ids = tuple(self.ids.tolist())
        return Encoded(tuple(self.prompt.tolist()), ids, (len(ids) - 1,), 0)


class Pair(NamedTuple):
    """Places of two rows of one problem."""

    chosen: int
    rejected: int


def read_solutions(
    files: Sequence[str],
    *,
    held_out: float,
    excluded: Iterable[str] = (),
    limit: int | None = None,
    held_out_limit: int | None = None,
) -> tuple[list[Solution], list[Solution], Counter[str]]:
    """Solutions to learn from, those to examine with, and rows left out by reason.

    Args:
        files: see `solutions_of`.
        held_out: share of the problems to examine with.
        excluded: texts of problems that must be in neither part.
        limit: rows in all, chosen by hash; see `limited`.
        held_out_limit: held-out rows, chosen so too.

    Raises:
        DataError: a file cannot be read, or nothing is left.
    """
    banned = {problem_id(text) for text in excluded}
    parts: tuple[list[Solution], list[Solution]] = ([], [])
    dropped, found = Counter[str](), list[Solution]()
    for one in solutions_of(files):
        if isinstance(one, str):
            dropped[one] += 1
        else:
            found.append(one)
    for one in limited(found, limit, "data.limit", dropped):
        if problem_id(one.problem) in banned:
            dropped["problem is in data.exclude"] += 1
        else:
            parts[is_held_out(one.problem, held_out)].append(one)
    parts[True][:] = limited(parts[True], held_out_limit, "data.held_out_limit", dropped)
    if not parts[0]:
        reasons = ", ".join(f"{why}: {n:,}" for why, n in dropped.items()) or "no rows"
        raise DataError(
            f"No solution is left to learn from in {', '.join(map(str, files))} ({reasons}). Rows "
            "need final_correct (true or false), or the columns prompt, chosen and rejected."
        )
    return *parts, dropped


def limited(
    found: Sequence[Solution], most: int | None, name: str, dropped: Counter[str]
) -> list[Solution]:
    """Some rows in their order; both solutions of a preference are one row.

    Problems are chosen by a hash of their text, so that solutions of one problem, which make pairs,
    stay together; of the last problem those that are left, by a hash of theirs.

    Args:
        found: solutions.
        most: rows that are wanted; None for all.
        name: of the setting, for ``dropped``.
        dropped: counts the rows that are left out.
    """
    rows: dict[tuple[str, int], list[Solution]] = {}
    for number, one in enumerate(found):
        key = ("row", number) if one.preference is None else ("preference", one.preference)
        rows.setdefault(key, []).append(one)
    if most is None or most >= len(rows):
        return list(found)

    def place(row: Sequence[Solution]) -> tuple[str, str]:
        texts = (text for one in row for text in one.steps)
        return (
            text_hash("limit " + problem_id(row[0].problem)),
            text_hash("limit " + row_id(row[0].problem, texts)),
        )

    dropped[f"beyond {name}"] = len(rows) - most
    chosen = {id(one) for row in sorted(rows.values(), key=place)[:most] for one in row}
    return [one for one in found if id(one) in chosen]


def solutions_of(files: Sequence[str]) -> Iterator[Solution | str]:
    """The solutions of files, in order; for a row that is not used, the reason.

    A file holds preferences, rows of ``stepmark prm convert``, or solutions without labels: columns
    ``problem``, ``final_correct``, and ``steps`` or one text (``completion``, ``response``,
    ``output``, ``solution``). Which of them, its first row says.

    Raises:
        DataError: a file cannot be read; it names line and reason.
    """
    numbers = count()
    for file in files:
        first = next(Source(file).rows(), (0, None))[1]
        columns = first if isinstance(first, Mapping) else {}
        if "chosen" in columns:
            yield from _preferences(file, numbers)
        elif "labels" in columns or "final_correct" not in columns:
            for row in labelled_steps(file):
                yield _judged(row.problem.text, row.steps, row.final_correct, file)
        else:
            yield from _unlabelled(file)


def _judged(problem: str, steps: Sequence[str], right: bool | None, file: str) -> Solution | str:
    if right is None:
        return "final_correct is not known"
    return Solution(problem, tuple(steps), right, file=file)


def _preferences(file: str, numbers: Iterator[int]) -> Iterator[Solution | str]:
    for line, row in Source(file).rows():
        texts = [_text(row, name) for name in PREFERENCE]
        if any(text is None for text in texts):
            raise DataError(
                f"{file}, line {line}: a preference needs the texts prompt, chosen and "
                "rejected, each with a word in it. Mend the line."
            )
        prompt, chosen, rejected = (str(text) for text in texts)
        if chosen == rejected:
            yield "chosen and rejected are equal"
            continue
        number = next(numbers)
        yield Solution(prompt, (chosen,), True, number, file)
        yield Solution(prompt, (rejected,), False, number, file)


def _unlabelled(file: str) -> Iterator[Solution | str]:
    for line, row in Source(file).rows():
        problem, right = _text(row, "problem"), None
        steps = row.get("steps") if isinstance(row, Mapping) else None
        if steps is None:
            steps = [text for name in TEXTS if (text := _text(row, name)) is not None][:1]
        if isinstance(row, Mapping):
            right = row.get("final_correct")
        is_told = right is None or isinstance(right, bool)
        is_list = isinstance(steps, list) and all(isinstance(step, str) for step in steps)
        if problem is None or not is_told or not is_list or not any(map(str.strip, steps)):
            raise DataError(
                f"{file}, line {line}: a solution needs a text problem, final_correct (true, false "
                f"or null), and steps, a list of texts, or a text in {', '.join(TEXTS)}. Mend the "
                "line, or convert the file with stepmark prm convert."
            )
        yield _judged(problem, steps, right, file)


def _text(row: Any, name: str) -> str | None:
    """The text of a column, or of the last message in it."""
    value = row.get(name) if isinstance(row, Mapping) else None
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content")
    return value if isinstance(value, str) and value.strip() else None


def encode_solutions(
    solutions: Sequence[Solution], encoder: StepEncoder
) -> tuple[list[OutcomeRow], Counter[str]]:
    """The solutions as tokens, as `stepmark.prm.OutcomeScorer` has them.

    One that does not fit whole is left out, with the reason.

    A reward is for the whole solution: read at the end of a part, it would say of a wrong answer
    that was cut away that it is right.
    """
    found, dropped = list[OutcomeRow](), Counter[str]()
    for one in solutions:
        steps = solution_steps(one.steps, encoder.settings.splitter)
        if not steps:
            dropped["no words"] += 1
            continue
        made = encoder.encode(Problem(problem_id(one.problem), one.problem, None), steps)
        if made.cut or not made.ends:
            dropped["longer than max_tokens"] += 1
            continue
        found.append(
            OutcomeRow(
                np.array(made.prompt_ids, dtype=np.int32),
                np.array(made.ids, dtype=np.int32),
                one.is_right,
                problem_id(one.problem),
                one.preference,
            )
        )
    return found, dropped


def pairs_of(rows: Sequence[OutcomeRow], *, per_problem: int, seed: int) -> list[Pair]:
    """Preferences as they are, and a right with a wrong solution of each problem.

    Args:
        rows: encoded solutions.
        per_problem: most pairs that are made for one problem, drawn by the seed.
        seed: of the run.
    """
    given: dict[int, dict[bool, int]] = {}
    problems: dict[str, tuple[list[int], list[int]]] = {}
    for place, row in enumerate(rows):
        if row.preference is not None:
            given.setdefault(row.preference, {})[row.is_right] = place
        else:
            problems.setdefault(row.problem, ([], []))[row.is_right].append(place)
    pairs = [Pair(both[True], both[False]) for both in given.values() if len(both) == 2]
    for problem, (wrong, right) in problems.items():
        draw = random.Random(derive_seed(seed, "pairs", problem))
        every = [Pair(chosen, rejected) for chosen in right for rejected in wrong]
        pairs += draw.sample(every, min(per_problem, len(every)))
    return pairs
