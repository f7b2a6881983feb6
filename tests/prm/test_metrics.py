"""Figures of step scores: against definitions, hand-made rows, and published lines."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.prm.floors import constant_guess, outcome_oracle
from stepmark.prm.metrics import (
    UNTOLD,
    FirstErrors,
    auroc,
    average_precision,
    best_threshold,
    calibration,
    f1_interval,
    first_below,
    first_errors,
    processbench_f1,
    rank_correlation,
    share_of_last_minima,
)

steps = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]), st.booleans()), min_size=1, max_size=30
)


def test_the_first_step_below_the_threshold_is_the_prediction() -> None:
    assert first_below([0.6, 0.5, 0.4], 0.5) == 2, "a score at the threshold is not below it"
    assert first_below([None, 0.4], 0.5) == 1
    assert first_below([], 0.5) == -1


def test_another_step_than_the_first_error_is_a_miss() -> None:
    found = first_errors([1, 2, -1, -1, 0], [1, 1, 1, -1, -1])
    assert (found.errors, found.corrects) == (3, 2)
    assert found.error_accuracy == pytest.approx(1 / 3)
    assert found.near_accuracy == pytest.approx(2 / 3)
    assert found.correct_accuracy == pytest.approx(1 / 2)
    assert found.f1 == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))


def test_saying_the_same_of_every_solution_earns_nothing() -> None:
    labels = [0, 1, -1, -1]
    for said in (-1, 0, 1):
        assert first_errors([said] * 4, labels).f1 == 0.0


def test_the_standard_error_is_that_of_repeated_draws() -> None:
    draw = random.Random(0)
    errors, corrects, hit, clear = 207, 193, 0.5, 0.9
    drawn = [
        processbench_f1(
            sum(draw.random() < hit for _ in range(errors)) / errors,
            sum(draw.random() < clear for _ in range(corrects)) / corrects,
        )
        for _ in range(2000)
    ]
    mean = sum(drawn) / len(drawn)
    spread = math.sqrt(sum((one - mean) ** 2 for one in drawn) / len(drawn))
    labels = [0] * errors + [-1] * corrects
    said = [0] * 104 + [1] * 103 + [-1] * 174 + [0] * 19
    assert first_errors(said, labels).standard_error == pytest.approx(spread, rel=0.08)


@pytest.mark.parametrize("labels", [[0, 1], [-1, -1], []])
def test_one_kind_of_solutions_alone_has_no_f1(labels: list[int]) -> None:
    with pytest.raises(ConfigError, match="with an error and without"):
        first_errors(labels, labels)


def test_the_best_threshold_separates_what_can_be_separated() -> None:
    rows = [[0.9, 0.31], [0.8, 0.9], [0.29, 0.2], [0.7, 0.6]]
    labels = [1, -1, 0, -1]
    threshold = best_threshold(rows, labels)
    assert 0.31 < threshold < 0.6
    assert first_errors([first_below(row, threshold) for row in rows], labels).f1 == 1.0
    assert best_threshold([[0.1], [0.9]], [0, -1]) == 0.5, "of equal ones, the one nearest to 0.5"


@given(steps)
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool]]) -> None:
    scores, right = [score for score, _ in rows], [label for _, label in rows]
    pairs = [(a > b) + (a == b) / 2 for a, x in rows for b, y in rows if x and not y]
    expected = sum(pairs) / len(pairs) if pairs else None
    found = auroc(scores, right)
    assert found == (pytest.approx(expected) if expected is not None else None)


@given(steps)
def test_average_precision_is_the_sum_over_distinct_scores(rows: list[tuple[float, bool]]) -> None:
    wrong = sum(not label for _, label in rows)
    expected, found_before = 0.0, 0
    for level in sorted({score for score, _ in rows}):
        taken = [label for score, label in rows if score <= level]
        found = sum(not label for label in taken)
        expected += (found - found_before) / max(wrong, 1) * found / len(taken)
        found_before = found
    got = average_precision([score for score, _ in rows], [label for _, label in rows])
    assert got == (pytest.approx(expected) if wrong else None)


def test_scores_that_are_chances_are_calibrated() -> None:
    draw = random.Random(1)
    scores = [draw.random() for _ in range(20_000)]
    right = [draw.random() < score for score in scores]
    found = calibration(scores, right)
    assert found.expected_error < 0.015
    assert found.brier == pytest.approx(1 / 6, abs=0.01)
    assert {one.steps for one in found.bins} == {2000}
    over = calibration([0.9] * 10, [True] * 5 + [False] * 5)
    assert over.expected_error == pytest.approx(0.4)
    assert len(over.bins) == 1, "steps of one score are not told apart"


def test_an_outcome_model_has_its_minima_at_the_end() -> None:
    assert share_of_last_minima([[0.9, 0.8, 0.1], [0.2, 0.9], [0.5, 0.5], [0.1]]) == 1 / 3
    assert share_of_last_minima([[0.1], []]) is None


def test_a_constant_has_no_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3], [5, 6, 9]) == pytest.approx(1)
    assert rank_correlation([1, 1], [2, 3]) is None


@pytest.mark.parametrize(
    ("name", "guess", "oracle"),
    [("gsm8k", 24.8, 44.4), ("math", 22.1, 35.9), ("olympiadbench", 20.9, 29.4)],
)
def test_floors_on_processbench_are_the_known_lines(
    data: Path, name: str, guess: float, oracle: float
) -> None:
    path = data / "processbench" / f"processbench_{name}.jsonl"
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    labels = [row["label"] for row in rows]
    assert round(100 * constant_guess(labels), 1) == guess
    lengths = [len(row["steps"]) for row in rows]
    found = outcome_oracle(labels, [row["final_answer_correct"] for row in rows], lengths)
    assert round(100 * found.f1, 1) == oracle


@pytest.mark.parametrize(
    ("hit", "clear", "errors", "corrects"),
    [(0.5, 0.9, 207, 193), (0.06, 0.99, 207, 193), (0.02, 0.3, 50, 40), (0.97, 0.95, 30, 20)],
)
def test_the_interval_of_f1_covers_it_about_95_times_in_100(
    hit: float, clear: float, errors: int, corrects: int
) -> None:
    rng = np.random.default_rng(0)
    truth = processbench_f1(hit, clear)
    hits, clears = rng.binomial(errors, hit, 1000), rng.binomial(corrects, clear, 1000)
    covered = 0
    for a, b in zip(hits / errors, clears / corrects, strict=True):
        found = FirstErrors(processbench_f1(a, b), a, b, errors, corrects, 0.0, a)
        low, high = f1_interval(found)
        assert 0 <= low <= found.f1 <= high <= 1
        covered += low <= truth <= high
    assert 0.92 <= covered / 1000 <= 0.995, "Wilson's own share at 0.02 of 50 is 0.92"


def test_an_f1_of_nothing_found_still_has_an_upper_bound() -> None:
    none_found = first_errors([-1] * 40, [0] * 20 + [-1] * 20)
    assert none_found.f1 == none_found.standard_error == 0.0
    low, high = f1_interval(none_found)
    assert low == 0.0
    assert high == pytest.approx(0.28, abs=0.005)
    assert f1_interval(first_errors([1] * 20, [0] * 10 + [-1] * 10)).high > 0.2


def test_a_solution_without_a_score_is_missed_in_both_accuracies() -> None:
    untold = first_below([None, None], 0.5)
    assert untold == UNTOLD
    found = first_errors([untold, 0, untold, -1], [0, 0, -1, -1])
    assert (found.error_accuracy, found.correct_accuracy, found.near_accuracy) == (0.5, 0.5, 0.5)
