"""A user's own data set as a task."""

from __future__ import annotations

import logging
from pathlib import Path

from .prompts import prompt_named
from .readers import FORMATS, read_table, split_place
from .rows import find_columns, to_problems
from .task import LoadedTask, data_hash

__all__ = ["load_dataset_task"]

log = logging.getLogger(__name__)


def load_dataset_task(
    place: str,
    prompt_column: str | None = None,
    gold_column: str | None = None,
    solution_column: str | None = None,
    *,
    prompt: str = "plain",
    max_tokens: int = 1024,
    needs_gold: bool = True,
) -> LoadedTask:
    """The task that a file, folder or hub data set makes; columns not named are guessed.

    What was guessed stands in ``announcement`` and is logged. All columns travel as ``meta``.

    Args:
        place: path or hub id, with ``:split`` where there are splits.
        prompt_column: column of the problem; else problem, question, prompt, input or query.
        gold_column: column of the gold; else gold, ground_truth, gts, target, solution, answer or
            final_answer.
        solution_column: column of a worked solution; none unless named.
        prompt: name of the prompt template, or its TOML file.
        max_tokens: length of a completion that is long enough, in tokens.
        needs_gold: False for data to learn from without marking: a missing gold is None then.

    Raises:
        DataError: a row cannot be read, a column is missing, or a guess is ambiguous.
        SetupError: a needed package is missing, or the hub cannot be reached.
    """
    source, split = split_place(place)
    table = read_table(source, split=split)
    columns = find_columns(
        table, prompt_column, gold_column, solution_column, needs_gold=needs_gold
    )
    if columns.announcement:
        log.info("%s", columns.announcement)
    name = task_name(source)
    problems = to_problems(table, columns, name)
    return LoadedTask(
        name=name,
        version="1",
        split=split or "all",
        problems=problems,
        prompt=prompt_named(prompt),
        max_tokens=max_tokens,
        data_hash=data_hash(problems),
        announcement=columns.announcement,
    )


def task_name(place: str) -> str:
    """A short name for a place.

    >>> task_name("data/rows.jsonl.gz"), task_name("openai/gsm8k")
    ('rows', 'gsm8k')
    """
    name = Path(place).name
    ending = next((end for end in sorted(FORMATS, key=len)[::-1] if name.endswith(end)), "")
    return name.removesuffix(ending) or "dataset"
