from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import DataError
from stepmark.rl_backends.advantages import group_advantages
from stepmark.rl_backends.process import mixed_advantages, process_advantages

scales = st.sampled_from(["sample", "population", "none"])
reward = st.integers(-20, 20).map(lambda n: n / 8)
# A completion: the reward of each step, None for an abstention, and the tokens that it took.
step = st.tuples(st.one_of(st.none(), reward), st.integers(1, 3))
completion = st.lists(step, max_size=4)
group = st.lists(completion, min_size=1, max_size=5)


def laid_out(rows):
    """Step rewards, step ends and lengths; a completion without steps has two tokens."""
    rewards = [[r for r, _ in row] for row in rows]
    ends = [[sum(n for _, n in row[: j + 1]) - 1 for j in range(len(row))] for row in rows]
    lengths = [sum(n for _, n in row) or 2 for row in rows]
    return rewards, ends, lengths


def near(found, expected) -> bool:
    return all(
        list(a) == pytest.approx(list(b), abs=1e-9) for a, b in zip(found, expected, strict=True)
    )


@given(group, scales)
def test_a_token_has_the_sum_of_the_rewards_of_the_steps_that_end_at_or_after_it(
    rows, scale
) -> None:
    rewards, ends, lengths = laid_out(rows)
    found = process_advantages(rewards, ends, lengths, scale=scale)
    pool = [
        (i, end, r) for i in range(len(rows)) for end, r in zip(ends[i], rewards[i], strict=True)
    ]
    normalised = group_advantages([r for _, _, r in pool], scale=scale)
    for i, length in enumerate(lengths):
        expected = [
            math.fsum(
                one
                for (row, end, _), one in zip(pool, normalised, strict=True)
                if row == i and end >= t
            )
            for t in range(length)
        ]
        assert list(found[i]) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.one_of(st.none(), reward), st.integers(1, 4)), min_size=1), scales)
def test_one_step_per_output_is_outcome_supervision(rows, scale) -> None:
    rewards, ends, lengths = laid_out([[row] for row in rows])
    found = process_advantages(rewards, ends, lengths, scale=scale)
    outcome = group_advantages([r for r, _ in rows], scale=scale)
    assert found == tuple((a,) * n for a, n in zip(outcome, lengths, strict=True))


@given(group, scales, st.permutations(range(5)))
def test_the_order_of_completions_does_not_matter(rows, scale, order) -> None:
    order = [place for place in order if place < len(rows)]
    found = process_advantages(*laid_out(rows), scale=scale)
    turned = process_advantages(*laid_out([rows[place] for place in order]), scale=scale)
    assert near(turned, [found[place] for place in order])


@given(group, st.sampled_from(["sample", "population"]), st.integers(1, 4), reward)
def test_the_range_of_the_scorer_does_not_matter(rows, scale, factor, shift) -> None:
    moved = [[(None if r is None else factor * r + shift, n) for r, n in row] for row in rows]
    found = process_advantages(*laid_out(rows), scale=scale, epsilon=0)
    assert near(process_advantages(*laid_out(moved), scale=scale, epsilon=0), found)


@given(group, scales)
def test_an_abstaining_step_is_as_if_it_had_no_reward_and_no_place_in_the_pool(rows, scale) -> None:
    rewards, ends, lengths = laid_out(rows)
    kept = [
        [(r, e) for r, e in zip(*both, strict=True) if r is not None]
        for both in zip(rewards, ends, strict=True)
    ]
    without = process_advantages(
        [[r for r, _ in row] for row in kept],
        [[e for _, e in row] for row in kept],
        lengths,
        scale=scale,
        tail="zero",
    )
    assert process_advantages(rewards, ends, lengths, scale=scale) == without


@given(group, scales)
def test_a_completion_without_steps_gets_zeros_and_changes_nobody_else(rows, scale) -> None:
    found = process_advantages(*laid_out(rows), scale=scale)
    more = process_advantages(*laid_out([*rows, []]), scale=scale)
    assert more == (*found, (0.0, 0.0))


@given(st.floats(-5, 5), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_steps_with_one_reward_teach_nothing(value, counts) -> None:
    rows = [[(value, 2)] * count for count in counts]
    found = process_advantages(*laid_out(rows), epsilon=0)
    assert {a for row in found for a in row} == {0.0}


@given(st.integers(1, 6), st.integers(1, 6))
def test_the_first_token_of_a_good_chain_earns_by_the_number_of_its_steps(few, factor) -> None:
    """The paper's bias, stated in the module: A is a sum."""
    rows = [[(1.0, 1)] * few, [(1.0, 1)] * few * factor, [(0.0, 1)]]
    short, long, _ = process_advantages(*laid_out(rows))
    assert long[0] == pytest.approx(factor * short[0])
    assert short[-1] == pytest.approx(long[-1])


@pytest.mark.parametrize(
    ("rewards", "ends", "lengths", "said"),
    [
        ([[1.0]], [[1]], [3], "ends on token 1 of a completion of 3"),
        ([[1.0, 0.0]], [[2]], [3], "2 step scores and 1 step ends"),
        ([[1.0, 0.0]], [[2, 1]], [3], "do not rise"),
        ([[1.0, 0.0]], [[1, 1]], [2], "do not rise"),
        ([[1.0]], [[3]], [3], "do not rise"),
        ([[1.0]], [[-1]], [3], "do not rise"),
        ([[1.0]], [[2], []], [3], "step ends of 2"),
    ],
)
def test_steps_that_do_not_fit_are_refused(rewards, ends, lengths, said) -> None:
    with pytest.raises(DataError, match=said):
        process_advantages(rewards, ends, lengths)


def test_tokens_behind_the_last_step_can_be_left_untrained() -> None:
    found = process_advantages([[1.0], [0.0]], [[0], [1]], [3, 2], scale="none", tail="zero")
    assert found == ((0.5, 0.0, 0.0), (-0.5, -0.5))


@given(group, st.floats(0, 2), st.floats(0, 2))
def test_a_mixture_is_linear_and_its_ends_are_its_parts(
    rows, outcome_weight, process_weight
) -> None:
    process = process_advantages(*laid_out(rows))
    outcome = group_advantages([float(i) for i in range(len(rows))])
    mixed = mixed_advantages(
        outcome, process, outcome_weight=outcome_weight, process_weight=process_weight
    )
    for whole, row, both in zip(outcome, process, mixed, strict=True):
        expected = [outcome_weight * whole + process_weight * token for token in row]
        assert list(both) == pytest.approx(expected)
    assert mixed_advantages(outcome, process, outcome_weight=0.0) == process
