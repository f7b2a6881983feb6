"""What a task is: problems by split, how they are put to a model, and how long answers may be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stepmark.registry import Registry
from stepmark.types import Problem

from .prompts import PromptTemplate

__all__ = ["AnswerKind", "LoadedTask", "Task", "data_hash", "tasks"]

AnswerKind = Literal["number", "expression", "text"]
"""What golds are: numbers, mathematical expressions, or any text."""


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark or training set by name, before any row is read."""

    name: str
    version: str
    """Raised whenever a problem, a gold or an id can change."""
    problems: Callable[..., Sequence[Problem]]
    """``problems(split, **settings)``; the settings are those of a reference ``name?key=value``."""
    prompt: str = "plain"
    """Name of the prompt template that is used unless another one is asked for."""
    answer_kind: AnswerKind = "expression"
    max_tokens: int = 1024
    """Length of a completion that is long enough, in tokens."""
    licence: str = ""
    source: str = ""
    """Where the rows come from, for people."""
    splits: tuple[str, ...] = ("train", "test")


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A split of a task with its rows read and checked."""

    name: str
    version: str
    split: str
    problems: tuple[Problem, ...] = field(repr=False)
    prompt: PromptTemplate
    max_tokens: int
    data_hash: str
    """Digest of the normalised rows: the same ids, golds and columns give the same one
    on every machine and from every file format."""
    answer_kind: AnswerKind = "expression"
    announcement: str = ""
    """One line on what was guessed (columns, split); empty when nothing was."""


tasks: Registry[Task] = Registry("task", "stepmark.tasks")
"""The known tasks; a plugin registers a `Task` under its name."""


def data_hash(problems: Iterable[Problem]) -> str:
    """Sixteen hexadecimal digits that change with any id, text, gold, solution or column.

    >>> data_hash([Problem("1", "How many?", "2")])
    '45ec21be8957536f'
    """
    digest = hashlib.blake2b(digest_size=8)
    for row in problems:
        value = [row.id, row.text, row.gold, row.solution, dict(row.meta)]
        digest.update(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode())
        digest.update(b"\n")
    return digest.hexdigest()
