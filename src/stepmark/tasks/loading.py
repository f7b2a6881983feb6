"""From a reference on a command line or in a config to a split with its rows read."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import ConfigError, DataError, did_you_mean
from stepmark.registry import Reference
from stepmark.types import Problem

from .prompts import prompt_named
from .spec import load_spec_task
from .task import LoadedTask, Task, data_hash, tasks

__all__ = ["WeightedTasks", "load_task", "load_tasks"]

log = logging.getLogger(__name__)
_WEIGHT = re.compile(r"(.+):(\d+(?:\.\d+)?)")


def load_task(reference: str | Mapping[str, Any] | Reference, split: str = "test") -> LoadedTask:
    """A split of a task, with its rows read and checked.

    Args:
        reference: a registered name, ``module:attr`` or ``file.py:attr`` (a `Task`, or a function
            ``problems(split, **settings)``), each with settings (``gsm8k?path=FILE``); or the path
            of a ``.toml`` task file.
        split: the split to read.

    Raises:
        UnknownNameError: no task is called that.
        ConfigError: a setting or split that the task does not have.
        DataError: the rows cannot be read.
        SetupError: a package is missing, or the hub cannot be reached.
    """
    asked = Reference.parse(reference)
    if asked.name.endswith(".toml"):
        if asked.settings:
            raise ConfigError(
                f"{asked}: a task file takes no settings here; write them into {asked.name}."
            )
        loaded = load_spec_task(Path(asked.name), split)
        if loaded.announcement:
            log.info("%s", loaded.announcement)
        return loaded
    task = _task(asked, tasks.load(asked.name))
    _check(task, asked, split)
    problems = tuple(task.problems(split, **asked.settings))
    _check_ids(task, problems)
    return LoadedTask(
        name=task.name,
        version=task.version,
        split=split,
        problems=problems,
        prompt=prompt_named(task.prompt),
        max_tokens=task.max_tokens,
        data_hash=data_hash(problems),
        answer_kind=task.answer_kind,
        announcement=_other_split(asked, split),
    )


def _task(asked: Reference, found: Any) -> Task:
    if isinstance(found, Task):
        return found
    if callable(found):
        made: Callable[..., Any] = found
        return Task(name=asked.name.rpartition(":")[2], version="1", problems=made, splits=())
    raise ConfigError(
        f"The task {asked.name!r} is a {type(found).__name__}; it must be a stepmark.tasks.Task "
        "or a function problems(split) that returns stepmark.Problem values."
    )


def _check(task: Task, asked: Reference, split: str) -> None:
    if task.splits and split not in task.splits:
        raise ConfigError(
            f"The task {task.name!r} has no split {split!r}; it has {', '.join(task.splits)}."
        )
    parameters = inspect.signature(task.problems).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = list(parameters)[1:]
    for name in asked.settings:
        if name not in known:
            raise ConfigError(
                f"The task {task.name!r} has no setting {name!r}. {did_you_mean(name, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )


def _check_ids(task: Task, problems: Sequence[Problem]) -> None:
    if not problems:
        raise DataError(f"The task {task.name!r} has no problems. Check its settings.")
    seen: set[str] = set()
    for problem in problems:
        if not isinstance(problem, Problem):
            raise DataError(
                f"The task {task.name!r} holds a {type(problem).__name__}; "
                "every entry must be a stepmark.Problem."
            )
        if problem.id in seen:
            raise DataError(
                f"The task {task.name!r} has two problems with the id {problem.id!r}; "
                "ids must be unique in a task."
            )
        seen.add(problem.id)


def _other_split(asked: Reference, split: str) -> str:
    """A note when a file's name says that it holds the other split than the one asked for."""
    path = asked.settings.get("path")
    other = {"train": "test", "test": "train"}.get(split)
    if not isinstance(path, str) or not other or "{split}" in path:
        return ""
    if re.search(rf"(?<![a-z]){other}(?![a-z])", Path(path).name.lower()):
        return f"{asked.name}: the split {split!r} is read from {path}, by name the {other!r} one."
    return ""


class WeightedTasks(NamedTuple):
    """Several tasks, and how often each is drawn from relative to the others."""

    tasks: tuple[LoadedTask, ...]
    weights: tuple[float, ...]

    def problems_by_task(self) -> dict[str, tuple[Problem, ...]]:
        """Name -> problems, as `problems_for_step` takes them."""
        return {task.name: task.problems for task in self.tasks}

    def weight_by_task(self) -> dict[str, float]:
        """Name -> weight, as `problems_for_step` takes them."""
        return {task.name: weight for task, weight in zip(self.tasks, self.weights, strict=True)}


def load_tasks(
    references: str | Sequence[str | Mapping[str, Any] | Reference],
    split: str = "test",
    *,
    weights: Sequence[float] | None = None,
) -> WeightedTasks:
    """Several tasks with weights: ``gsm8k:2,arith:1``, or a list of references and the weights.

    Raises:
        ConfigError: a weight is not positive, their number is wrong, or a task is named twice.
        DataError: two tasks have a problem of the same id.
    """
    items = split_names(references) if isinstance(references, str) else list(references)
    named = [_weighted(item) for item in items]
    given = tuple(weight for _, weight in named) if weights is None else tuple(weights)
    if len(given) != len(named) or not named:
        raise ConfigError(f"{len(given)} weights for {len(named)} tasks; give one a task.")
    if bad := [weight for weight in given if not 0 < weight < math.inf]:
        raise ConfigError(f"A task's weight is {bad[0]}; it must be greater than 0.")
    loaded = tuple(load_task(name, split) for name, _ in named)
    names = [task.name for task in loaded]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"The tasks {', '.join(names)} are not all different; name each task once. "
            "Two files of one layout can be two task files with names of their own."
        )
    _check_apart(loaded)
    return WeightedTasks(loaded, given)


def _check_apart(loaded: Sequence[LoadedTask]) -> None:
    """By its id a problem gets its prompt template and its place in the store."""
    owner: dict[str, str] = {}
    for task in loaded:
        for problem in task.problems:
            if (other := owner.setdefault(problem.id, task.name)) != task.name:
                raise DataError(
                    f"The tasks {other!r} and {task.name!r} both have a problem with the id "
                    f"{problem.id!r}, and completions are kept by id. Begin the ids of a task with "
                    f"its name, such as {f'{task.name}/{problem.id}'!r}."
                )


def _weighted(item: Any) -> tuple[Any, float]:
    found = _WEIGHT.fullmatch(item.strip()) if isinstance(item, str) else None
    return (found[1], float(found[2])) if found else (item, 1.0)


def split_names(text: str) -> list[str]:
    """References between commas; commas inside brackets belong to a setting.

    >>> split_names("arith?steps=[2,4]:2, gsm8k")
    ['arith?steps=[2,4]:2', 'gsm8k']
    """
    parts = re.split(r",(?![^\[\]]*\])", text)
    return [part.strip() for part in parts if part.strip()]
