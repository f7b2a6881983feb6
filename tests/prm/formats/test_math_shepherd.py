"""Math-Shepherd: labels come from alignment, never from signs in the mathematics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.prm.formats import Rejected, load_format
from stepmark.prm.formats.math_shepherd import MathShepherd
from stepmark.types import LabelledSteps, Problem

INPUT = (
    "Ana has 3 pens. How many? Step 1: 1 + 2 - 0 = 3. ки\nStep 2: 3 + 8 = 12. The answer is: 12 ки"
)


def row(marks: str = "+-", text: str = INPUT, **more: Any) -> dict[str, Any]:
    pieces = text.split("ки")
    label = "".join(piece + mark for piece, mark in zip(pieces, [*marks, ""], strict=True))
    return {"input": text, "label": label, "task": "GSM8K", **more}


def test_a_table_of_both_shapes_has_one_column_empty(read: Any) -> None:
    [found] = read("math-shepherd", row(value=None))
    assert found.labels == (1.0, 0.0)
    [found] = read("math-shepherd", {"input": INPUT, "label": None, "value": ["+", "-"]})
    assert found.labels == (1.0, 0.0)


def test_the_labels_are_those_of_the_tags(read: Any) -> None:
    [found] = read("math-shepherd", row())
    assert found.problem.text == "Ana has 3 pens. How many?"
    assert found.steps == ("Step 1: 1 + 2 - 0 = 3.", "Step 2: 3 + 8 = 12. The answer is: 12")
    assert found.labels == (1, 0)
    assert (found.kind, found.origin, found.first_error) == ("hard", "rollouts", 1)
    assert found.meta == {"task": "GSM8K"}


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.text("+- 123=\n", max_size=8))
def test_signs_in_the_text_never_become_labels(marks: list[bool], noise: str) -> None:
    steps = [f"Step {n}: {noise} so {n}" for n, _ in enumerate(marks, 1)]
    text = f"What is {noise}? " + "".join(f"{step} ки\n" for step in steps)
    signs = "".join("+" if mark else "-" for mark in marks)
    [found] = MathShepherd().read(row(signs, text))
    assert found.labels == tuple(map(float, marks))  # type: ignore[union-attr]


def test_the_second_shape_has_a_list_of_values(read: Any) -> None:
    [hard] = read("math-shepherd", {"input": INPUT, "value": ["+", "-"]})
    [soft] = read("math-shepherd", {"input": INPUT, "value": [0.875, 0.0]})
    assert (hard.labels, hard.kind) == ((1, 0), "hard")
    assert (soft.labels, soft.kind) == ((0.875, 0), "soft")
    assert soft.final_correct is None


def test_the_last_label_marks_a_written_answer(read: Any) -> None:
    assert read("math-shepherd", row("-+"))[0].final_correct is True
    assert (
        read("math-shepherd", row("++", INPUT.replace("The answer is", "So")))[0].final_correct
        is None
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"label": "another text"}, "not_aligned"),
        ({"label": INPUT.replace("ки", "+") + " and more"}, "not_aligned"),
        ({"label": INPUT.replace("ки", "*")}, "not_aligned"),
        ({"label": INPUT.replace("ки", "+", 1)}, "not_aligned"),
        ({"label": INPUT.replace("ки", "+")[:-1]}, "not_aligned"),
        ({"input": INPUT.replace("Step 1:", "First,"), "value": ["+", "+"]}, "step_mark"),
        ({"input": "Say 'Step 1: go'. " + INPUT, "value": ["+", "+"]}, "step_mark"),
        ({"input": "Q? Step 1: no tag at all", "value": []}, "no_labels"),
        ({"value": ["+"]}, "label_count"),
        ({"value": ["+", "-", "+"]}, "label_count"),
        ({"value": ["+", "good"]}, "label_value"),
        ({"value": [1.5, 0.0]}, "label_value"),
        ({"value": [float("nan"), 0.0]}, "label_value"),
        ({"input": None}, "column"),
        ({"label": None, "value": "+-"}, "column"),
    ],
)
def test_a_malformed_row_is_rejected(read: Any, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("math-shepherd", row() | changed)
    assert why.value.reason == reason


def test_a_tag_in_the_problem_is_dropped_with_its_label_when_asked_for(read: Any) -> None:
    stray = row("+-", "Round 8.7. ки Step 1: 8.7 rounds to 9. ки")
    with pytest.raises(Rejected, match=r"stray_tag.*stray_tags=drop"):
        read("math-shepherd", stray)
    [found] = read("math-shepherd", stray, stray_tags="drop")
    assert found.problem.text == "Round 8.7."
    assert found.labels == (0,)


def test_text_after_the_last_tag_is_masked_or_dropped_when_asked_for(read: Any) -> None:
    tail = row("+", "Find 2+2. Step 1: It is 4. ки\nThe answer is: 4")
    with pytest.raises(Rejected, match=r"unlabelled_tail.*tail=mask"):
        read("math-shepherd", tail)
    assert read("math-shepherd", tail, tail="mask")[0].labels == (1, None)
    assert read("math-shepherd", tail, tail="drop")[0].steps == ("Step 1: It is 4.",)


def test_other_marks_of_the_first_step_are_tried_in_order(read: Any) -> None:
    lower = row("+", "Find 2+2. step 1: It is 4. ки")
    with pytest.raises(Rejected, match="step_mark"):
        read("math-shepherd", lower)
    [found] = read("math-shepherd", lower, step_mark="Step 1:|step 1:")
    assert found.problem.text == "Find 2+2."


def test_a_problem_with_the_word_for_the_tag_is_no_problem_with_another_tag(read: Any) -> None:
    text = "What is ки in Latin letters? Step 1: It is ki. <s>\nStep 2: So ki. <s>"
    [found] = read("math-shepherd", {"input": text, "value": ["+", "-"]}, tag="<s>")
    assert found.problem.text == "What is ки in Latin letters?"
    assert found.labels == (1, 0)


def test_an_unknown_word_for_a_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="reject, mask, drop"):
        load_format("math-shepherd?tail=guess")
    with pytest.raises(ConfigError, match="no setting 'tial'"):
        load_format("math-shepherd?tial=mask")
    with pytest.raises(ConfigError, match="Step 1:"):
        load_format("math-shepherd", step_mark="")


def test_shares_of_rollouts_stay_estimates_where_all_are_whole(read: Any) -> None:
    [found] = read("math-shepherd", {"input": INPUT, "value": [1.0, 0.0]})
    assert (found.labels, found.kind) == ((1, 0), "soft")


def labelled(*labels: float | None, steps: tuple[str, ...] = (), kind: str = "hard") -> Any:
    texts = steps or tuple(f"{number} + 1 - 0" for number, _ in enumerate(labels))
    problem = Problem("p", "Ana has 3 - 1 pens. How many?", "2", task="own")
    return LabelledSteps(problem, texts, labels, kind)  # type: ignore[arg-type]


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_what_is_written_is_read_back_with_the_same_labels(marks: list[bool]) -> None:
    row = MathShepherd().write(labelled(*map(float, marks)))
    [found] = MathShepherd().read(row)
    assert isinstance(found, LabelledSteps)
    assert found.labels == tuple(map(float, marks))
    assert (found.kind, found.problem.text) == ("hard", "Ana has 3 - 1 pens. How many?")
    assert found.steps[-1] == f"Step {len(marks)}: {len(marks) - 1} + 1 - 0"
    assert MathShepherd().write(found) == {**row, "task": "own"}


def test_estimates_are_written_in_the_second_shape_and_stay_estimates() -> None:
    row = MathShepherd().write(labelled(1.0, 0.375, 0.0, kind="soft"))
    [found] = MathShepherd().read(json.loads(json.dumps(row)))
    assert isinstance(found, LabelledSteps)
    assert (found.labels, found.kind) == ((1.0, 0.375, 0.0), "soft")


def test_steps_behind_the_last_label_are_not_written() -> None:
    row = MathShepherd().write(labelled(1, 0, None, None))
    assert row["label"].endswith("Step 1: 0 + 1 - 0 +\nStep 2: 1 + 1 - 0 -")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (labelled(None, None), "no_labels"),
        (labelled(1, None, 0), "masked_between"),
        (labelled(1, 0, steps=("a", "the tag ки")), "stray_tag"),
        (labelled(1, 0, steps=("a", "see Step 1: b")), "step_mark"),
    ],
)
def test_what_the_layout_cannot_say_is_rejected(bad: LabelledSteps, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        MathShepherd().write(bad)
    assert caught.value.reason == reason
