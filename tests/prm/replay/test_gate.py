"""The gate's truth table, and the paired intervals it goes by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stepmark.prm.replay.config import GateTable
from stepmark.prm.replay.figures import Change, Figures, Read, change
from stepmark.prm.replay.gate import judge

UP = Change(0.2, 0.8, 0.5, 0.7)
UNSURE = Change(0.50, 0.52, -0.01, 0.05)
DOWN = Change(0.5, 0.4, -0.2, 0.0)
SMALL_LOSS = Change(0.90, 0.86, -0.06, -0.02)
LARGE_LOSS = Change(0.90, 0.84, -0.08, -0.04)


@pytest.mark.parametrize(
    ("new", "old", "rule", "accepted"),
    [
        (UP, {}, "rise", True),
        (UP, {0: SMALL_LOSS}, "rise", True),
        (UP, {0: LARGE_LOSS}, "rise", False),
        (UP, {0: SMALL_LOSS, 1: LARGE_LOSS}, "rise", False),
        (UP, {0: UP, 1: None}, "rise", True),
        (UNSURE, {0: UP}, "rise", False),
        (UNSURE, {}, "not_fall", True),
        (DOWN, {}, "rise", False),
        (DOWN, {}, "not_fall", False),
        (DOWN, {0: UP}, "any", True),
        (DOWN, {0: LARGE_LOSS}, "any", False),
        (None, {0: UP}, "rise", False),
        (None, {0: UP}, "not_fall", False),
        (None, {0: UP}, "any", True),
    ],
)
def test_new_must_rise_and_no_old_set_may_fall_too_far(
    new: Change | None, old: dict[int, Change | None], rule: str, accepted: bool
) -> None:
    found = judge(new, old, GateTable(new=rule))  # type: ignore[arg-type]
    assert found.accepted is accepted
    assert bool(found.reasons) is not accepted


def test_the_bound_itself_passes_and_is_a_setting() -> None:
    edge = Change(0.90, 0.85, -0.07, -0.03)
    assert judge(UP, {0: edge}, GateTable()).accepted
    assert not judge(UP, {0: edge}, GateTable(max_old_drop=0.04)).accepted
    assert judge(UP, {0: LARGE_LOSS}, GateTable(max_old_drop=0.1)).accepted


def test_a_rejection_says_which_set_fell_from_where_to_where() -> None:
    (reason,) = judge(UP, {0: LARGE_LOSS}, GateTable()).reasons
    assert "round 0 falls by 0.060 (from 0.900 to 0.840" in reason
    assert "max_old_drop is 0.05" in reason


def said(found: Sequence[int], clear: Sequence[int]) -> Read:
    """A model on problems with an error and on as many without: 1 where it is right."""
    rows = [(hit, 1, 0, 0) for hit in found] + [(0, 0, hit, 1) for hit in clear]
    counts = np.array(rows, dtype=float)
    a, n, b, m = counts.sum(axis=0)
    value = 2 * (a / n) * (b / m) / (a / n + b / m) if a and b else 0.0
    return Read(Figures(len(rows), len(rows), "f1", value, a / n, b / m), counts, [])


def test_equal_models_have_an_interval_of_nothing() -> None:
    one = said([1, 0, 1, 1], [1, 1, 0, 1])
    found = change(one, one, level=0.95, resamples=200)
    assert found is not None
    assert (found.gain, found.low, found.high) == (0.0, 0.0, 0.0)


def test_a_clear_gain_has_an_interval_above_nothing_and_a_small_one_has_not() -> None:
    before = said([0] * 40 + [1] * 10, [1] * 50)
    clear = change(before, said([0] * 10 + [1] * 40, [1] * 50), level=0.95, resamples=2000)
    small = change(before, said([0] * 39 + [1] * 11, [1] * 50), level=0.95, resamples=2000)
    assert clear is not None
    assert small is not None
    assert 0 < clear.low < clear.gain < clear.high
    assert small.low <= 0 < small.gain < small.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    truth, hits, trials = 2 * 0.7 * 0.9 / 1.6 - 2 * 0.4 * 0.9 / 1.3, 0, 60
    for _ in range(trials):
        one = said(draw.random(80) < 0.4, draw.random(80) < 0.9)  # type: ignore[arg-type]
        two = said(draw.random(80) < 0.7, draw.random(80) < 0.9)  # type: ignore[arg-type]
        found = change(one, two, level=0.95, resamples=400)
        assert found is not None
        hits += found.low <= truth <= found.high
    assert hits >= 0.85 * trials


def test_a_set_of_one_kind_cannot_tell() -> None:
    blind = Read(Figures(3, 3, None, None, None, None), np.zeros((3, 4)), [])
    assert change(blind, blind, level=0.95, resamples=200) is None
