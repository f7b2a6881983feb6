"""A task described in a TOML file: ``--task my.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stepmark.config.validate import validate
from stepmark.errors import ConfigError

from .prompts import PromptTemplate, prompt_from_table, prompt_named
from .readers import read_table
from .rows import find_columns, to_problems
from .task import AnswerKind, LoadedTask, data_hash

__all__ = ["TaskSpec", "load_spec"]


class SpecTable(BaseModel):
    """A table of a task file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ColumnsTable(SpecTable):
    """Which column is what; those left out are guessed as for ``--dataset``."""

    prompt: str | None = None
    """Column of the problem."""
    gold: str | None = None
    """Column of the gold."""
    solution: str | None = None
    """Column of a worked solution."""


class TaskSpec(SpecTable):
    """The keys of a task file."""

    name: str = Field(min_length=1)
    """Name of the task, which starts the ids of its problems."""
    version: str = "1"
    """Raise it when a problem or a gold changes."""
    path: str | None = None
    """File or folder, relative to the task file; ``{split}`` in it is replaced by the split."""
    hub: str | None = None
    """Hub id instead of a path."""
    config: str | None = None
    """Configuration of the hub data set."""
    splits: dict[str, str] = Field(default_factory=dict)
    """The data set's name for each of our splits, such as ``test = "validation"``."""
    columns: ColumnsTable = Field(default_factory=ColumnsTable)
    """Which column is what."""
    prompt: str | dict[str, Any] = "plain"
    """Name of a prompt template, its TOML file, or a table with ``template`` and more."""
    answer_kind: AnswerKind = "expression"
    """What golds are: number, expression or text."""
    max_tokens: int = Field(default=1024, ge=1)
    """Length of a completion that is long enough, in tokens."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError(
                f"path is {self.path!r} and hub is {self.hub!r}; set exactly one of them"
            )
        return self


def load_spec(path: Path) -> TaskSpec:
    """The task that a TOML file describes.

    Raises:
        ConfigError: the file cannot be read, or has a key or value that is not allowed.
    """
    try:
        tree = tomllib.loads(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"The task file {str(path)!r} cannot be read: {error}. "
            'It is TOML with name and path, such as:\n    name = "mine"\n    path = "rows.jsonl"'
        ) from error
    try:
        return validate(TaskSpec, tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_spec_task(path: Path, split: str) -> LoadedTask:
    """A split of the task that a TOML file describes.

    Raises:
        ConfigError: the file is not a task file.
        DataError: its rows cannot be read.
        SetupError: the hub cannot be reached.
    """
    spec = load_spec(path)
    if spec.splits and split not in spec.splits:
        raise ConfigError(
            f"{path}: splits names {', '.join(spec.splits)}, not {split!r}. "
            f'Add {split} = "..." under [splits], or ask for one of those.'
        )
    own_split = spec.splits.get(split, split)
    if spec.path is not None:
        place = str(path.expanduser().parent / spec.path.replace("{split}", own_split))
    else:
        place = spec.hub or ""
    table = read_table(place, split=own_split, config=spec.config)
    columns = find_columns(table, spec.columns.prompt, spec.columns.gold, spec.columns.solution)
    problems = to_problems(table, columns, spec.name)
    return LoadedTask(
        name=spec.name,
        version=spec.version,
        split=split,
        problems=problems,
        prompt=_prompt(spec, path),
        max_tokens=spec.max_tokens,
        data_hash=data_hash(problems),
        answer_kind=spec.answer_kind,
        announcement=columns.announcement,
    )


def _prompt(spec: TaskSpec, path: Path) -> PromptTemplate:
    if isinstance(spec.prompt, str):
        beside = path.expanduser().parent / spec.prompt
        return prompt_named(str(beside) if spec.prompt.endswith(".toml") else spec.prompt)
    return prompt_from_table({"name": spec.name, **spec.prompt}, where=str(path))
