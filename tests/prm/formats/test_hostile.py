"""Whatever a row holds, a format reads it or rejects it: no other error, and nothing invented."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark.prm.formats import Rejected, formats, guess_format, load_format
from stepmark.types import LabelledSteps

NAMES = formats.names()
KINDS = {name: load_format(name) for name in NAMES}
few = settings(max_examples=40)
KEYS = sorted(
    {"input", "label", "value", "task", "question", "reasoning_steps", "solution_prefix"}
    | {"mc_value", "text", "children", "problem", "steps", "labels", "completions", "rating"}
    | {"chosen_completion", "human_completion", "finish_reason", "prompt", "messages", "content"}
    | {"conversations", "role", "from", "response", "final_answer_correct", "generation"}
    | {"is_quality_control_question", "kind", "meta", "gold"}
    | {"modified_question", "modified_process", "error_steps"}
)
WORDS = ("Q", "Step 1:", "ки", "<extra_0>", "+", "-", "user", "assistant", "hard", "", " ", "\n")

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=5)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
rows = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)


@pytest.mark.parametrize("name", NAMES)
@few
@given(row=rows)
def test_any_row_is_read_or_rejected(name: str, row: dict[str, Any]) -> None:
    kind = KINDS[name]
    assert kind.matches(row) in (True, False)
    try:
        found = list(kind.read(row))
    except Rejected:
        return
    for one in found:
        if isinstance(one, LabelledSteps):
            assert len(one.steps) == len(one.labels)


NESTED = {
    "math-shepherd": {"input": "Q Step 1: a ки", "label": "Q Step 1: a +"},
    "prm800k": {
        "question": {"problem": "Q"},
        "label": {"steps": [{"completions": [{"text": "a", "rating": 1}], "chosen_completion": 0}]},
    },
    "trl": {"prompt": "Q", "completions": ["a"], "labels": [True]},
    "processbench": {"problem": "Q", "steps": ["a"], "label": 0},
    "qwen": {
        "messages": [
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": "a<extra_0>"},
        ],
        "labels": [1],
    },
    "rlhflow": {
        "conversations": [
            {"role": "user", "content": "Q Step 1: a"},
            {"role": "assistant", "content": "+"},
        ]
    },
    "skywork": {"problem": "Q", "response": "a", "labels": [1]},
    "math-aps": {
        "question": "Q",
        "reasoning_steps": [{"solution_prefix": "Q\n\na", "mc_value": 1.0}],
    },
    "stepmark": {"problem": "Q", "steps": ["a"], "labels": [1]},
    "prmbench": {"modified_question": "Q", "modified_process": ["a"], "error_steps": [1]},
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values inside of a value."""
    here = [at] if at else []
    if not isinstance(value, dict | list):
        return here
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return here + [place for key, one in inner for place in places(one, (*at, key))]


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_a_good_row_with_one_value_changed_is_read_or_rejected(
    name: str, data: st.DataObject
) -> None:
    row = json.loads(json.dumps(NESTED[name]))
    *way, last = data.draw(st.sampled_from(places(row)))
    holder = row
    for key in way:
        holder = holder[key]
    holder[last] = data.draw(values)
    with suppress(Rejected):
        list(KINDS[name].read(row))


@pytest.mark.parametrize("name", NAMES)
def test_a_good_row_is_read_and_its_format_guessed(name: str) -> None:
    [found] = load_format(name).read(NESTED[name])
    assert isinstance(found, LabelledSteps)
    assert (found.problem.text, len(found.steps)) == ("Q", 1)
    assert guess_format([NESTED[name]], "a file") == name


def test_the_source_is_the_name_of_the_format() -> None:
    for name in set(NAMES) - {"stepmark"}:
        [found] = load_format(name).read(NESTED[name])
        assert found.source == name  # type: ignore[union-attr]
