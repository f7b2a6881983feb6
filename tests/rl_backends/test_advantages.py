from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import DataError
from stepmark.rl_backends.advantages import (
    batch_advantages,
    decoupled_advantages,
    group_advantages,
    is_flat,
    useful_groups,
)

rewards = st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=1, max_size=16)
scales = st.sampled_from(["sample", "population", "none"])
baselines = st.sampled_from(["mean", "leave-one-out"])
eighths = st.one_of(st.none(), st.integers(-16, 16).map(lambda n: n / 8))
group_of_eighths = st.lists(eighths, min_size=1, max_size=6)

HALF = math.sqrt(3) / 2

# Our own small table of the facts, so that the arithmetic is tested without the oracle file.
TABLE = [
    ([1, 0, 0, 1], "population", 0.0, [1, -1, -1, 1]),
    ([1, 0, 0, 1], "sample", 0.0, [HALF, -HALF, -HALF, HALF]),
    ([1, 0, 0, 0], "sample", 0.0, [1.5, -0.5, -0.5, -0.5]),
    ([1, 0, 0, 0], "none", 0.0, [0.75, -0.25, -0.25, -0.25]),
    ([1, None, 0, 0], "population", 0.0, [math.sqrt(2), 0, -math.sqrt(0.5), -math.sqrt(0.5)]),
    ([0.8], "sample", 0.0, [0.0]),
]


@pytest.mark.parametrize(("given_rewards", "scale", "epsilon", "expected"), TABLE)
def test_advantages_are_those_computed_by_hand(given_rewards, scale, epsilon, expected) -> None:
    found = group_advantages(given_rewards, scale=scale, epsilon=epsilon)
    assert list(found)[: len(expected)] == pytest.approx(expected, abs=1e-12)


@given(rewards, scales)
def test_advantages_of_a_group_sum_to_zero(values, scale) -> None:
    assert math.fsum(group_advantages(values, scale=scale)) == pytest.approx(0, abs=1e-6)


@given(st.floats(-10, 10), st.integers(1, 60), scales)
def test_advantages_of_equal_rewards_are_zero(value, count, scale) -> None:
    assert group_advantages([value] * count, scale=scale, epsilon=0.0) == (0.0,) * count


@given(rewards, scales)
def test_an_abstention_gets_zero_and_changes_nobody_else(values, scale) -> None:
    with_one = group_advantages([*values, None], scale=scale)
    assert with_one[-1] == 0.0
    assert with_one[:-1] == group_advantages(values, scale=scale)
    assert group_advantages([*values, math.nan], scale=scale) == with_one


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(-5, 5))
def test_advantages_keep_the_order_of_rewards(values, shift) -> None:
    found = group_advantages(values)
    for one, a in zip(values, found, strict=True):
        for two, b in zip(values, found, strict=True):
            assert not (one < two and a > b)


def test_fewer_than_two_scored_rewards_teach_nothing() -> None:
    assert is_flat([None, None])
    assert is_flat([1.0, None])
    assert not is_flat([1.0, None, 0.0])


@given(rewards)
def test_leave_one_out_subtracts_the_mean_of_the_others(values) -> None:
    found = group_advantages(values, scale="none", baseline="leave-one-out")
    for place, value in enumerate(values):
        others = [v for n, v in enumerate(values) if n != place and v is not None]
        if value is None or not others:
            assert found[place] == 0.0
        else:
            expected = value - math.fsum(others) / len(others)
            assert found[place] == pytest.approx(expected, abs=1e-9)


@given(st.lists(group_of_eighths, min_size=1, max_size=4), baselines)
def test_one_deviation_divides_the_whole_batch(groups, baseline) -> None:
    found = batch_advantages(groups, baseline=baseline, epsilon=0)
    every = [v for group in groups for v in group if v is not None]
    for group, row in zip(groups, found, strict=True):
        centred = group_advantages(group, scale="none", baseline=baseline)
        if is_flat(every):
            assert set(row) <= {0.0}
        else:
            mean = math.fsum(every) / len(every)
            spread = math.sqrt(math.fsum((v - mean) ** 2 for v in every) / (len(every) - 1))
            assert list(row) == pytest.approx([c / spread for c in centred], abs=1e-9)


@given(group_of_eighths)
def test_a_batch_of_one_group_is_that_group(values) -> None:
    found = batch_advantages([values])[0]
    assert list(found) == pytest.approx(list(group_advantages(values)), abs=1e-12)


@given(st.lists(group_of_eighths, min_size=1, max_size=3))
def test_one_reward_alone_is_normalised_then_whitened(groups) -> None:
    found = decoupled_advantages([[[v] for v in group] for group in groups], [1.0])
    every = [a for row in found for a in row]
    assert math.fsum(every) == pytest.approx(0, abs=1e-6)
    for group, row in zip(groups, found, strict=True):
        for value, advantage in zip(group, row, strict=True):
            assert value is not None or advantage == 0.0


def test_decoupled_rewards_count_by_weight_and_not_by_spread() -> None:
    # Summed first, the reward of 100 decides alone; normalised first, both count alike.
    rows = [[100.0, 0.0], [0.0, 1.0], [100.0, 1.0], [0.0, 0.0]]
    summed = group_advantages([sum(row) for row in rows])
    decoupled = decoupled_advantages([rows], [1.0, 1.0])[0]
    assert summed[0] > 0 > summed[1]
    # To the epsilon that is added to both deviations.
    assert list(decoupled[:2]) == pytest.approx([0, 0], abs=1e-5)
    assert decoupled[2] > 0 > decoupled[3]
    # Three to one: sums of 2, -2, 4 and -4 deviations, whitened.
    heavier = decoupled_advantages([rows], [3.0, 1.0], scale="population")[0]
    expected = [sum_ / math.sqrt(10) for sum_ in (2, -2, 4, -4)]
    assert list(heavier) == pytest.approx(expected, abs=1e-5)


def test_a_completion_that_lacks_a_weighted_reward_is_left_out_everywhere() -> None:
    rows = [[1.0, 0.5], [0.0, 0.0], [1.0, None]]
    two = decoupled_advantages([rows[:2]], [1.0, 1.0])[0]
    assert decoupled_advantages([rows], [1.0, 1.0])[0] == (*two, 0.0)
    # A reward without weight is recorded only: that it is missing costs nothing.
    assert decoupled_advantages([rows], [1.0, 0.0])[0][2] > 0


def test_every_reward_needs_a_weight() -> None:
    with pytest.raises(DataError, match="1 rewards and there are 2 weights"):
        decoupled_advantages([[[1.0]]], [1.0, 1.0])


@given(st.lists(group_of_eighths, max_size=5))
def test_useful_groups_are_those_with_an_advantage(groups) -> None:
    kept = useful_groups(groups)
    for place, values in enumerate(groups):
        assert (place in kept) == any(group_advantages(values))
