"""Scores for verl without verl: the keys it gets, faults, threads."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from stepmark.adapters.verl import Scorer
from stepmark.errors import ConfigError, VerifierError

CHECKS = Path(__file__).parent / "checks.py"
KEYS = {"score", "acc", "pred", "verdict_scored", "verdict_status", "verdict_reason"}


def test_a_score_comes_with_what_was_found_and_why() -> None:
    row = Scorer("math")("gsm8k", "So it is 18.", "18", extra_info={"num_turns": None})
    assert row == {
        "score": 1.0,
        "acc": 1.0,
        "pred": "18",
        "verdict_scored": 1.0,
        "verdict_status": "ok",
        "verdict_reason": "equal",
    }


@pytest.mark.parametrize("gold", ["18", "", None, np.array(["18"]), {"a": 1}, 18, np.int64(18)])
def test_every_response_has_the_same_keys_and_plain_values(gold: object) -> None:
    for text in ("So it is 18.", "", "I do not know."):
        row = Scorer("math")("gsm8k", text, gold)
        assert row.keys() == KEYS
        assert {type(value) for value in row.values()} == {float, str}


def test_a_missing_score_is_the_configured_one_and_says_so() -> None:
    row = Scorer("math", abstain_score=-0.5)("gsm8k", "So it is 18.", None)
    assert (row["score"], row["acc"], row["verdict_scored"]) == (-0.5, 0.0, 0.0)
    assert (row["verdict_status"], row["verdict_reason"]) == ("abstain", "gold_missing")
    with pytest.raises(ConfigError, match="inf"):
        Scorer("math", abstain_score=math.inf)


def test_part_marks_are_scores_and_not_accuracy() -> None:
    row = Scorer(f"{CHECKS}:units")("data", "2", "5", {"unit": "cm"})
    assert (row["score"], row["acc"]) == (0.5, 0.0)


def test_columns_come_from_extra_info() -> None:
    mark = Scorer(f"{CHECKS}:units")
    assert mark("data", "5 cm", "5", {"unit": "cm"})["score"] == 1.0
    with pytest.raises(ConfigError, match=r"'unit'.*Columns: data_source, length"):
        mark("data", "5 cm", "5", {"length": 3})


def test_a_verifier_that_breaks_stops_the_run() -> None:
    mark = Scorer(f"{CHECKS}:breaks")
    assert {mark("data", "5", "5")["verdict_status"] for _ in range(10)} == {"error"}
    with pytest.raises(VerifierError, match="no such table"):
        mark("data", "5", "5")


def test_threads_may_share_a_scorer_and_it_can_be_pickled() -> None:
    mark = pickle.loads(pickle.dumps(Scorer("math")))
    texts = ["5", "6", r"\sqrt{25}"] * 8
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda text: mark("data", text, "5"), texts))
    assert [row["score"] for row in rows] == [1.0, 0.0, 1.0] * 8
