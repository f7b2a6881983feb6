"""What a file holds is counted: labels by position, first errors, repeats, conflicts."""

from __future__ import annotations

from typing import Any

from stepmark import LabelledSteps, Problem
from stepmark.prm import label_balance

PROBLEM, OTHER = Problem("p", "1+1?", "2"), Problem("q", "2+2?", "4")


def row(labels: tuple[float | None, ...], problem: Problem = PROBLEM, **more: Any) -> LabelledSteps:
    return LabelledSteps(problem, tuple(f"step {n}" for n in range(len(labels))), labels, **more)


def test_labels_are_counted_by_position_and_in_the_last_step() -> None:
    found = label_balance([row((1, 0, None)), row((1, 1)), row((0.5,), kind="soft")])
    assert found.labels == {"right": 3, "wrong": 1, "masked": 1, "between": 1}
    assert found.last_labels == {"masked": 1, "right": 1, "between": 1}
    assert found.by_position == [
        {"right": 2, "between": 1},
        {"wrong": 1, "right": 1},
        {"masked": 1},
    ]
    assert found.kinds == {"hard": 2, "soft": 1}
    assert sorted(found.steps_per_row) == [1, 2, 3]


def test_a_first_error_behind_a_masked_step_is_not_known() -> None:
    found = label_balance([row((0,)), row((1, 0, 1)), row((None, 0)), row((1, None)), row((1, 1))])
    assert found.first_errors == {0: 1, 1: 1, -1: 1}
    assert found.first_error_unknown == 2


def test_repeats_and_conflicts_are_told_apart() -> None:
    found = label_balance([row((1,)), row((1,)), row((0,)), row((1,), OTHER)])
    assert (found.rows, found.distinct, found.conflicting, found.problems) == (4, 2, 1, 2)
    assert found.to_json()["rows_per_problem"]["largest"] == 3


def test_right_answers_with_a_wrong_step_are_counted() -> None:
    rows = [row((1, 0), final_correct=True), row((1, 1), final_correct=True), row((0,))]
    found = label_balance(rows)
    assert found.right_answer_with_error == 1
    assert found.final_correct == {"right": 2, "unknown": 1}


def test_no_rows_are_counted_as_none() -> None:
    found = label_balance([]).to_json()
    assert found["rows"] == 0
    assert found["steps_per_row"]["mean"] == 0
