"""Which prompts a step gets: a pure function of the seed and the step, so nothing must be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepmark.engines.render import render
from stepmark.errors import DataError
from stepmark.tasks.prompts import PromptTemplate
from stepmark.tasks.schedule import problems_for_step
from stepmark.types import Problem, Prompt

__all__ = ["prompt_source"]


def prompt_source(
    problems_by_task: Mapping[str, Sequence[Problem]],
    templates: Mapping[str, PromptTemplate],
    tokenizer: Any,
    *,
    count: int,
    seed: int,
    max_tokens: int = 0,
    model_limit: int | None = None,
    weights: Mapping[str, float] | None = None,
) -> Callable[[int], Sequence[Prompt]]:
    """What `train` takes as ``prompts``: the rendered problems of a step, from 1.

    Args:
        problems_by_task: task name -> its problems.
        templates: task name -> its prompt template.
        tokenizer: the policy's.
        count: problems per step.
        seed: of the run.
        max_tokens: room that a completion needs behind its prompt, in tokens.
        model_limit: longest sequence of the model, in tokens.
        weights: task name -> how often it is drawn; None for equal shares.

    Raises:
        DataError: two tasks have a problem of the same id, and templates that differ.
    """
    template_of = _templates_by_id(problems_by_task, templates)

    def prompts(step: int) -> Sequence[Prompt]:
        chosen = problems_for_step(problems_by_task, weights, seed, step - 1, count)
        return [
            render(
                problem,
                tokenizer,
                template_of[problem.id],
                max_tokens=max_tokens,
                model_limit=model_limit,
            )
            for problem in chosen
        ]

    return prompts


def _templates_by_id(
    problems_by_task: Mapping[str, Sequence[Problem]], templates: Mapping[str, PromptTemplate]
) -> dict[str, PromptTemplate]:
    found: dict[str, PromptTemplate] = {}
    for name, problems in problems_by_task.items():
        for problem in problems:
            if found.setdefault(problem.id, templates[name]) != templates[name]:
                raise DataError(
                    f"Two tasks have a problem with the id {problem.id!r}, one of them {name!r}, "
                    "and their prompt templates differ. Give every problem an id of its own, "
                    "beginning with the name of its task."
                )
    return found
