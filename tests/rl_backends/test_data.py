"""The prompts of a step: every problem through the template of its own task."""

from __future__ import annotations

import pytest

from stepmark import DataError, Problem
from stepmark.rl_backends import prompt_source
from stepmark.tasks.arith_model import arith_tokenizer
from stepmark.tasks.prompts import PromptTemplate

TEMPLATES = {"a": PromptTemplate("t", "1 {problem}"), "b": PromptTemplate("t", "2 {problem}")}


def source(ids: dict[str, str], templates: dict[str, PromptTemplate]):
    problems = {name: [Problem(id, name, None, task=name)] for name, id in ids.items()}
    return prompt_source(problems, templates, arith_tokenizer(), count=2, seed=0)


def test_templates_of_one_name_stay_with_their_tasks() -> None:
    prompts = source({"a": "rows/1", "b": "rows/2"}, TEMPLATES)(1)
    assert {prompt.text for prompt in prompts} == {"<bos>1 a", "<bos>2 b"}


def test_problems_of_one_id_and_two_templates_are_refused() -> None:
    with pytest.raises(DataError, match="id 'rows/1', one of them 'b'"):
        source({"a": "rows/1", "b": "rows/1"}, TEMPLATES)
    same = dict.fromkeys("ab", TEMPLATES["a"])
    assert len(source({"a": "rows/1", "b": "rows/1"}, same)(1)) == 2
