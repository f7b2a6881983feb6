"""From rows to problems: which column is what, and what a cell may hold."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepmark.errors import DataError, did_you_mean
from stepmark.types import Problem

from .readers import Row, Table

__all__ = ["GOLD_NAMES", "PROMPT_NAMES", "Columns", "find_columns", "need_columns", "to_problems"]

PROMPT_NAMES = ("problem", "question", "prompt", "input", "query")
GOLD_NAMES = ("gold", "ground_truth", "gts", "target", "solution", "answer", "final_answer")


class Columns(NamedTuple):
    """The columns that are read as problem, gold and worked solution."""

    prompt: str
    gold: str | None
    """None where there is none and none is needed."""
    solution: str | None
    announcement: str
    """One line on what was guessed; empty when nothing was."""


def need_columns(table: Table, names: Sequence[str], remedy: str) -> None:
    """Refuse a table in which a column is missing from any row, or a text is no text.

    Raises:
        DataError: with the columns seen, those expected, and the remedy.
    """
    check_texts(table)
    for index, row in enumerate(table.rows):
        if missing := [name for name in names if name not in row]:
            raise DataError(
                f"{table.where(index)}: no column {', '.join(map(repr, missing))}; "
                f"it has {', '.join(row) or 'none'}, expected {', '.join(names)}. {remedy}"
            )


def check_texts(table: Table) -> None:
    r"""Refuse a table that holds half of a surrogate pair: no tokenizer and no file can take it.

    JSON can say one, ``"\\ud83d"``, where a text was cut within an emoji before it was written.

    Raises:
        DataError: names the row, and the column.
    """
    for index, row in enumerate(table.rows):
        for name, value in row.items():
            if any(not _is_whole(text) for text in _texts_in([name, value])):
                raise DataError(
                    f"{table.where(index)}: the column {name!r} holds half of a surrogate pair, "
                    "such as \\ud83d alone, which is no character: a text was cut within one. "
                    "Mend or remove the row."
                )


def _texts_in(value: Any) -> Iterator[str]:
    """All texts in a cell, however deep."""
    inner = [value]
    while inner:
        one = inner.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            inner += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            inner += one


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_columns(
    table: Table,
    prompt: str | None,
    gold: str | None,
    solution: str | None,
    *,
    needs_gold: bool = True,
) -> Columns:
    """The columns to read: those that were named, the others guessed from their names.

    Without ``needs_gold``, a gold that cannot be guessed is left out.

    Raises:
        DataError: a named column is missing, or a guess has no candidate or several.
    """
    for flag, name in (("prompt", prompt), ("gold", gold), ("solution", solution)):
        if name is not None and name not in table.columns:
            hint = did_you_mean(name, table.columns)
            raise DataError(
                f"{table.place} has no column {name!r}. {hint} "
                f"Columns: {', '.join(table.columns)}. Name one of them: {_flag(flag)}."
            )
    taken = {name for name in (prompt, gold, solution) if name}
    found_prompt = prompt or _guess(table, "prompt", PROMPT_NAMES, taken)
    taken |= {found_prompt}
    if gold is None and not needs_gold and len(_candidates(table, GOLD_NAMES, taken)) != 1:
        found_gold = None
    else:
        found_gold = gold or _guess(table, "gold", GOLD_NAMES, taken)
    guessed = [
        f"{word} from column {name!r}"
        for word, name, given in (("problem", found_prompt, prompt), ("gold", found_gold, gold))
        if given is None and name is not None
    ]
    line = f"{table.place}: {', '.join(guessed)}" if guessed else ""
    return Columns(found_prompt, found_gold, solution, line)


def _guess(table: Table, kind: str, names: Sequence[str], taken: set[str]) -> str:
    found = _candidates(table, names, taken)
    if len(found) == 1:
        return found[0]
    what = f"several candidates for the {kind}: {', '.join(found)}"
    if not found:
        what = f"no column that is known to hold the {kind} ({', '.join(names)})"
    choices = found or table.columns
    raise DataError(
        f"{table.place} has {what}. Columns: {', '.join(table.columns)}. "
        f"Choose with --{kind}-column, for example --{kind}-column {choices[0]}."
    )


def _candidates(table: Table, names: Sequence[str], taken: set[str]) -> list[str]:
    return [name for name in names if name in table.columns and name not in taken]


def to_problems(table: Table, columns: Columns, name: str) -> tuple[Problem, ...]:
    """The rows as problems; all columns travel in ``meta`` under their own names.

    Ids: ``NAME/`` and the ``id`` column where every row has one; else a digest of problem and gold,
    with ``-2``, ``-3`` ... for repeated rows, in their order.

    Raises:
        DataError: a row's problem, gold, solution or id cannot be used, or two rows share an id.
    """
    check_texts(table)
    texts = [_problem_text(row.get(columns.prompt), table, i) for i, row in enumerate(table.rows)]
    golds = [
        None if columns.gold is None else cell_text(row.get(columns.gold), "gold", table, i)
        for i, row in enumerate(table.rows)
    ]
    if columns.gold is not None and all(gold is None for gold in golds):
        raise DataError(
            f"{table.place}: the gold column {columns.gold!r} is empty in every row. "
            f"Set --gold-column to one of {', '.join(table.columns)}."
        )
    ids = _ids(table, name, texts, golds)
    problems: list[Problem] = []
    for index, (id, text, gold, row) in enumerate(zip(ids, texts, golds, table.rows, strict=True)):
        worked = row.get(columns.solution) if columns.solution else None
        solution = cell_text(worked, "solution", table, index)
        problems.append(Problem(id, text, gold, solution, name, dict(row)))
    return tuple(problems)


def _ids(
    table: Table, name: str, texts: Sequence[str], golds: Sequence[str | None]
) -> Iterable[str]:
    if any(_is_missing(row.get("id")) for row in table.rows):
        contents = [
            hashlib.blake2b(f"{text}\x1f{gold}".encode(), digest_size=8).hexdigest()
            for text, gold in zip(texts, golds, strict=True)
        ]
        seen: Counter[str] = Counter()
        ids: list[str] = []
        for content in contents:
            seen[content] += 1
            ids.append(f"{name}/{content}" + (f"-{seen[content]}" if seen[content] > 1 else ""))
        return ids
    first: dict[str, int] = {}
    for index, row in enumerate(table.rows):
        id = f"{name}/{row['id']}"
        if id in first:
            raise DataError(
                f"{table.where(index)}: the id {row['id']!r} was used before, at "
                f"{table.where(first[id])}. Ids must differ; rename the column to let ids be made."
            )
        first[id] = index
    return first


def _problem_text(value: Any, table: Table, index: int) -> str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        return _user_turn(value, table, index)
    raise DataError(
        f"{table.where(index)}: the problem is {_short(value)}, not a text with words in it. "
        "Mend or remove the row, or choose another --prompt-column."
    )


def _user_turn(turns: list[Row], table: Table, index: int) -> str:
    """The text of a chat's one user turn; chats with more turns have no single problem."""
    users = [turn.get("content") for turn in turns if turn.get("role") == "user"]
    others = {str(turn.get("role")) for turn in turns} - {"user", "system"}
    if len(users) != 1 or others or not isinstance(users[0], str) or not users[0].strip():
        roles = ", ".join(str(turn.get("role")) for turn in turns)
        raise DataError(
            f"{table.where(index)}: the problem is a chat with the turns {roles}; only one user "
            "turn, with or without a system turn, can be read. Put the problem into a text column."
        )
    return users[0]


def cell_text(value: Any, kind: str, table: Table, index: int) -> str | None:
    """A cell as text: text and numbers as they are; None, NaN or blank as None; a list of one."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if _is_missing(value):
        return None
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"{table.where(index)}: the {kind} is {_short(value)}, not a text or a number. "
        f"Mend or remove the row, or choose another column: {_flag(kind)}."
    )


def _flag(kind: str) -> str:
    """How the column of a kind is named on a command line."""
    name = "--set data.solution_column=" if kind == "solution" else f"--{kind}-column "
    return f"{name}NAME"


def _is_missing(value: Any) -> bool:
    """Whether a cell is empty: tables write what is missing as NaN where a column holds numbers."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
