"""What ``rm eval`` says of a scorer: by hand on few solutions, and its laws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import ConfigError, DataError, UnknownNameError
from stepmark.prm.outcome_data import Solution, solutions_of
from stepmark.prm.outcome_eval import examine_outcomes, figures_of, rate
from stepmark.types import StepItem, StepScores

SOLUTIONS = [
    Solution("one?", ("0.9",), True),
    Solution("one?", ("0.2", "0.8"), False),
    Solution("two?", ("0.4",), True),
    Solution("two?", ("0.4",), False),
    Solution("three?", ("none",), True),
    Solution("three?", ("0.6",), True),
]


class Written:
    """Scores a step by the number that it is; of whole solutions where it says so."""

    key = "written@1"
    aggregation = "min"

    def __init__(self, *, whole: bool = False, fails: bool = False) -> None:
        self.scores_whole, self.fails = whole, fails

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return ((0, len(text)),)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        found: list[StepScores] = []
        for item in items:
            numbers = [None if step == "none" else float(step) for step in item.steps]
            if self.scores_whole:
                numbers[:-1] = [None] * (len(numbers) - 1)
            is_bad = self.fails and None in numbers
            found.append(StepScores(tuple(numbers), self.key, failed=is_bad))
        return found


def examined(scorer: Any, solutions: Sequence[Solution] = SOLUTIONS, **more: Any) -> Any:
    return examine_outcomes(scorer, solutions, data="d", label="l", **more)


def test_figures_are_those_worked_out_by_hand() -> None:
    report = examined(Written())
    values = {one.name: one.value for one in report.figures}
    # Right: 0.9, 0.4, none, 0.6; wrong, by min: 0.2, 0.4. Of 8 pairs five are in order, one a tie.
    assert values["auroc"] == pytest.approx(5.5 / 8)
    assert values["pair_accuracy"] == pytest.approx((1 + 0.5) / 2)
    # At 0.5 right are called 0.9 and 0.6; 0.2 and 0.4 are rightly called wrong.
    assert values["accuracy"] == pytest.approx(4 / 6)
    assert values["larger_class"] == pytest.approx(4 / 6)
    squares = (0.1**2, 0.2**2, 0.6**2, 0.4**2, 0.4**2)
    assert values["brier"] == pytest.approx(sum(squares) / 5)
    assert (report.solutions, report.problems, report.right) == (6, 3, 4)
    assert (report.unscored, report.failed) == (1, 0)
    (best,) = report.best_of
    assert (best.k, best.problems) == (2, 3)
    assert best.best.value == pytest.approx((1 + 0.5 + 1) / 3)
    assert (best.mean, best.bound) == (pytest.approx(2 / 3), 1.0)


def test_a_scorer_of_whole_solutions_is_read_at_the_last_step() -> None:
    by_last = {one.name: one.value for one in examined(Written(whole=True)).figures}
    # The wrong solution of two steps has 0.8 now.
    assert by_last["auroc"] == pytest.approx(3.5 / 8)
    rows = rate(Written(whole=True), SOLUTIONS, "last")
    assert [row.score for row in rows] == [0.9, 0.8, 0.4, 0.4, None, 0.6]


def test_a_failed_solution_is_counted_apart_from_one_without_a_score() -> None:
    report = examined(Written(fails=True))
    assert (report.unscored, report.failed) == (0, 1)


def test_intervals_hold_the_value_and_are_the_same_again() -> None:
    once, again = examined(Written()).figures, examined(Written()).figures
    assert once == again
    for one in once[:3]:
        assert one.low <= one.value <= one.high


def test_more_problems_of_the_same_kind_narrow_the_interval() -> None:
    def width(copies: int) -> float:
        many = [
            one._replace(problem=f"{one.problem} {copy}")
            for copy in range(copies)
            for one in SOLUTIONS
        ]
        figure = figures_of(rate(Written(), many, "min"))[0]
        return (figure.high or 0.0) - (figure.low or 0.0)

    assert width(64) < width(16) < width(4)
    # Copies within a problem say nothing new.
    within = figures_of(rate(Written(), SOLUTIONS * 16, "min"))[0]
    assert (within.high or 0) - (within.low or 0) > 2 * width(16)


def test_preferences_are_compared_each_with_its_own() -> None:
    rows = [
        Solution("p?", ("0.9",), True, 0),
        Solution("p?", ("0.8",), False, 0),
        Solution("p?", ("0.3",), True, 1),
        Solution("p?", ("0.4",), False, 1),
    ]
    report = examined(Written(), rows)
    assert report.figure("pair_accuracy").value == 0.5, "and not that of four pairs, 0.5 + 0.25"
    assert report.best_of == ()


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(DataError, match="6 right solutions of 6"):
        examined(Written(), [one._replace(is_right=True) for one in SOLUTIONS])
    with pytest.raises(DataError, match="l gives none of the 6 solutions of d a score"):
        examined(Written(), [one._replace(steps=("none",)) for one in SOLUTIONS])
    with pytest.raises(UnknownNameError, match="Did you mean 'min'"):
        examined(Written(), aggregation="mn")
    scorer = Written()
    scorer.columns = {"moves"}  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="moves"):
        examined(scorer)


def put(place: Path, *rows: Any) -> str:
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(place)


def test_solutions_need_no_labels(tmp_path: Path) -> None:
    rows = [
        {"problem": "a?", "final_correct": True, "completion": "1\n2"},
        {"problem": "a?", "final_correct": False, "steps": ["1", "3"]},
        {"problem": "b?", "final_correct": None, "response": "x"},
        {"problem": "b?", "final_correct": True, "solution": "x", "completion": " "},
    ]
    assert list(solutions_of([put(tmp_path / "rows.jsonl", *rows)])) == [
        Solution("a?", ("1\n2",), True, file=str(tmp_path / "rows.jsonl")),
        Solution("a?", ("1", "3"), False, file=str(tmp_path / "rows.jsonl")),
        "final_correct is not known",
        Solution("b?", ("x",), True, file=str(tmp_path / "rows.jsonl")),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"problem": 3, "final_correct": True, "completion": "x"},
        {"problem": "a?", "final_correct": 1, "completion": "x"},
        {"problem": "a?", "final_correct": "yes", "completion": "x"},
        {"problem": "a?", "final_correct": True},
        {"problem": "a?", "final_correct": True, "completion": " "},
        {"problem": "a?", "final_correct": True, "steps": "x"},
        {"problem": "a?", "final_correct": True, "steps": ["x", 2]},
        {"problem": "a?", "final_correct": True, "steps": []},
        ["a?", True, "x"],
    ],
)
def test_a_line_that_is_no_solution_is_named(bad: Any, tmp_path: Path) -> None:
    good = {"problem": "a?", "final_correct": True, "completion": "x"}
    with pytest.raises(DataError, match="line 2: a solution needs a text problem, final_correct"):
        list(solutions_of([put(tmp_path / "rows.jsonl", good, bad)]))
