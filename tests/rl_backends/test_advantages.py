from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.rl_backends.advantages import group_advantages, is_flat

rewards = st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=1, max_size=16)
scales = st.sampled_from(["sample", "population", "none"])

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

ORACLE = ["half", "one_of_four", "graded"]
CONVENTIONS = {
    "paper_ddof0_eps0": ("population", 0.0),
    "paper_ddof1_eps0": ("sample", 0.0),
    "trl_ddof1_eps1e-4": ("sample", 1e-4),
    "verl_slime_ddof1_eps1e-6": ("sample", 1e-6),
    "openrlhf_group_norm_ddof1_eps1e-9": ("sample", 1e-9),
    "open_instruct_standard_ddof0_eps1e-8": ("population", 1e-8),
    "dr_grpo_no_std (prime-rl default, open-instruct 'centered')": ("none", 0.0),
}


@pytest.mark.parametrize(("given_rewards", "scale", "epsilon", "expected"), TABLE)
def test_advantages_are_those_computed_by_hand(given_rewards, scale, epsilon, expected) -> None:
    found = group_advantages(given_rewards, scale=scale, epsilon=epsilon)
    assert list(found)[: len(expected)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ORACLE)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_oracle_conventions_of_outcome_advantages(oracle, name, convention) -> None:
    case = oracle(f"outcome_advantage/{name}")
    scale, epsilon = CONVENTIONS[convention]
    found = group_advantages(case["inputs"]["rewards"], scale=scale, epsilon=epsilon)
    assert found == pytest.approx(case["expected"][convention], abs=1e-10)


def test_oracle_special_groups(oracle) -> None:
    zero = oracle("outcome_advantage/zero_variance")
    assert list(group_advantages(zero["inputs"]["rewards"])) == zero["expected"]["advantages"]
    single = oracle("outcome_advantage/singleton_group")
    assert list(group_advantages(single["inputs"]["rewards"])) == single["expected"]["recommended"]
    case = oracle("outcome_advantage/unscorable")
    for key, scale, epsilon in (
        ("ddof0_eps0", "population", 0.0),
        ("ddof1_eps1e-4", "sample", 1e-4),
    ):
        found = group_advantages(case["inputs"]["rewards"], scale=scale, epsilon=epsilon)
        assert found == pytest.approx(case["expected"][key], abs=1e-10)
    for name in ("0.1x7", "0.7x8", "0.3x6"):
        inputs = oracle(f"outcome_advantage/float32_constant_{name}")["inputs"]
        same = [inputs["rewards_float32"]] * inputs["G"]
        assert set(group_advantages(same, epsilon=1e-9)) == {0.0}


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
