from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import DataError
from stepmark.rl_backends.gae import (
    explained_variance,
    generalized_advantages,
    kl_rewards,
    shaped_rewards,
    step_rewards,
    value_loss,
    whiten,
)

number = st.floats(-3, 3)
share = st.floats(0, 1)
score = st.floats(0, 1)
halves = st.integers(-6, 6).map(lambda n: n / 2)
# A completion: reward and value of each token, and whether the policy sampled it.
completion = st.lists(st.tuples(number, number, st.booleans()), min_size=1, max_size=8)
batch = st.lists(completion, min_size=1, max_size=4)


def doubles(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def columns(rows):
    rewards, values, masks = zip(*([*zip(*row, strict=True)] for row in rows), strict=True)
    return [*map(doubles, rewards)], [*map(doubles, values)], [torch.tensor(m) for m in masks]


@given(batch, share, share)
def test_advantages_are_the_discounted_sum_of_surprises(rows, gamma, lam) -> None:
    rewards, values, _ = columns(rows)
    found = generalized_advantages(rewards, values, gamma=gamma, lam=lam)
    for r, v, advantages in zip(rewards, values, found.advantages, strict=True):
        later = np.append(v.numpy()[1:], 0.0)
        surprise = r.numpy() + gamma * later - v.numpy()
        for t in range(len(r)):
            decay = (gamma * lam) ** np.arange(len(r) - t)
            assert float(advantages[t]) == pytest.approx(float(decay @ surprise[t:]), abs=1e-9)


@given(batch)
def test_undiscounted_returns_do_not_depend_on_the_critic(rows) -> None:
    rewards, values, _ = columns(rows)
    found = generalized_advantages(rewards, values)
    for r, v, advantages, returns in zip(rewards, values, *found, strict=True):
        later = r.flip(0).cumsum(0).flip(0)
        assert returns.tolist() == pytest.approx(later.tolist(), abs=1e-9)
        assert advantages.tolist() == pytest.approx((later - v).tolist(), abs=1e-9)


@given(batch, share, share)
def test_a_completion_has_the_same_advantages_alone_and_in_any_batch(rows, gamma, lam) -> None:
    rewards, values, _ = columns(rows)
    together = generalized_advantages(rewards, values, gamma=gamma, lam=lam)
    for place in range(len(rows)):
        alone = generalized_advantages([rewards[place]], [values[place]], gamma=gamma, lam=lam)
        assert torch.equal(alone.advantages[0], together.advantages[place])
        assert torch.equal(alone.returns[0], together.returns[place])


@given(batch, share, share)
def test_hidden_tokens_are_as_if_they_were_not_there(rows, gamma, lam) -> None:
    rewards, values, masks = columns(rows)
    dirty = [v.masked_fill(~m, math.nan) for v, m in zip(values, masks, strict=True)]
    hidden = generalized_advantages(rewards, dirty, gamma=gamma, lam=lam, masks=masks)
    cut = [[row[mask] for row, mask in zip(each, masks, strict=True)] for each in (rewards, values)]
    short = generalized_advantages(*cut, gamma=gamma, lam=lam)
    for kind in (0, 1):
        for row, mask, expected in zip(hidden[kind], masks, short[kind], strict=True):
            assert torch.equal(row[mask], expected)
            assert torch.equal(row[~mask], torch.zeros_like(row[~mask]))


@given(completion, number, share)
def test_a_cut_completion_goes_on_with_the_value_behind_it(row, end, gamma) -> None:
    rewards, values, _ = columns([row])
    longer = [torch.cat([values[0], doubles([end])])]
    extended = [torch.cat([rewards[0], doubles([0.0])])]
    cut = generalized_advantages(rewards, values, gamma=gamma, lam=0.7, next_values=[end])
    whole = generalized_advantages(extended, longer, gamma=gamma, lam=0.7)
    # Without the surprise of the one token more, the sums differ by what it carries back.
    carried = float(whole.advantages[0][-1]) * (gamma * 0.7) ** np.arange(len(row), 0, -1)
    back = whole.advantages[0][:-1].numpy() - carried
    assert cut.advantages[0].tolist() == pytest.approx(back.tolist(), abs=1e-9)


def test_shapes_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2,\), \(1,\)"):
        generalized_advantages([torch.zeros(2)], [torch.zeros(1)])


def test_estimates_carry_no_gradient_and_keep_the_type() -> None:
    values = [torch.zeros(3, requires_grad=True)]
    found = generalized_advantages([torch.ones(3)], values)
    assert all(not rows[0].requires_grad for rows in found)
    assert found.returns[0].dtype == torch.float32


# A chain of steps: the score after each step, and the tokens it took.
chain = st.lists(st.tuples(score, st.integers(1, 3)), min_size=1, max_size=6)


def returns_of(scores, sizes, kind) -> float:
    """The undiscounted return of the first token."""
    ends = (np.cumsum(sizes) - 1).tolist()
    rewards = step_rewards(scores, ends, ends[-1] + 1, kind)
    values = torch.zeros_like(rewards)
    return float(generalized_advantages([rewards], [values]).returns[0][0])


@given(chain, st.integers(0, 5), st.integers(1, 4))
def test_repeating_a_step_does_not_raise_the_return(steps, which, times) -> None:
    repeated = steps[: which + 1] + [steps[min(which, len(steps) - 1)]] * times + steps[which + 1 :]
    before = returns_of(*zip(*steps, strict=True), "difference")
    after = returns_of(*zip(*repeated, strict=True), "difference")
    assert after == pytest.approx(before, abs=1e-12)
    assert returns_of(*zip(*repeated, strict=True), "raw") >= returns_of(
        *zip(*steps, strict=True), "raw"
    )


def test_repeating_a_good_step_earns_under_raw_scores() -> None:
    assert returns_of([0.9], [1], "raw") == pytest.approx(0.9)
    assert returns_of([0.9, 0.9], [1, 1], "raw") == pytest.approx(1.8)


@given(chain)
def test_differences_of_step_scores_telescope_to_the_last(steps) -> None:
    scores, sizes = zip(*steps, strict=True)
    assert returns_of(scores, sizes, "difference") == pytest.approx(scores[-1], abs=1e-12)


@given(st.lists(st.one_of(st.none(), score), min_size=1, max_size=6))
def test_a_step_without_a_score_adds_nothing(scores) -> None:
    last = next((s for s in reversed(scores) if s is not None), 0.0)
    sizes = [1] * len(scores)
    assert returns_of(scores, sizes, "difference") == pytest.approx(last, abs=1e-12)
    scored = sum(s for s in scores if s is not None)
    assert returns_of(scores, sizes, "raw") == pytest.approx(scored, abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "ends"), [([1.0], [0, 1]), ([1.0, 1.0], [1, 1]), ([1.0], [4]), ([1.0], [-1])]
)
def test_steps_that_do_not_fit_are_refused(scores, ends) -> None:
    with pytest.raises(DataError):
        step_rewards(scores, ends, 4)


@given(batch, share, number)
def test_the_rewards_of_a_completion_sum_to_its_log_ratio_and_its_outcome(rows, beta, out) -> None:
    old, ref, _ = columns(rows)
    shaped = shaped_rewards(old, ref, [out] * len(rows), beta=beta)
    for o, r, row in zip(old, ref, shaped, strict=True):
        expected = -beta * float((o - r).sum()) + out
        assert float(row.sum()) == pytest.approx(expected, abs=1e-9)
        without = kl_rewards(o, r, beta)
        assert torch.equal(row[:-1], without[:-1])


def test_steps_and_outcome_meet_on_the_last_sampled_token() -> None:
    steps = step_rewards([0.5, 0.25], [0, 2], 3)
    old = [torch.full((3,), -1.0)]
    assert shaped_rewards(old, None, [2.0], beta=0.1, steps=[steps])[0].tolist() == [0.5, 0, 1.75]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_completion_without_a_reward_or_a_token_is_refused(bad) -> None:
    with pytest.raises(ValueError, match="Completion 1"):
        shaped_rewards([torch.zeros(1)] * 2, None, [1.0, bad], beta=0.0)
    with pytest.raises(ValueError, match="0 sampled tokens"):
        shaped_rewards([torch.zeros(0)], None, [1.0], beta=0.0)


@given(st.lists(number, min_size=2, max_size=5), st.lists(number, min_size=5, max_size=5))
def test_the_penalty_as_a_reward_moves_the_policy_towards_the_reference(logits, ref) -> None:
    pi = torch.log_softmax(doubles(logits), -1)
    reference = torch.log_softmax(doubles(ref[: len(logits)]), -1)
    leaf = doubles(logits).requires_grad_()
    (torch.log_softmax(leaf, -1).exp() * (torch.log_softmax(leaf, -1) - reference)).sum().backward()
    # What REINFORCE ascends, over all outcomes: E[reward * grad log pi].
    rewards = kl_rewards(pi, reference, beta=1.0)
    scores = torch.eye(len(logits), dtype=torch.float64) - pi.exp()
    ascent = (pi.exp() * rewards) @ scores
    assert ascent.tolist() == pytest.approx((-leaf.grad).tolist(), abs=1e-9)


@given(st.lists(st.lists(halves, min_size=1, max_size=5), min_size=1, max_size=4))
def test_whitened_tokens_of_a_batch_have_mean_zero_and_deviation_one(rows) -> None:
    white = torch.cat(whiten([*map(doubles, rows)], epsilon=0))
    flat = [x for row in rows for x in row]
    if max(flat) == min(flat):
        assert not white.any()
    else:
        assert float(white.mean()) == pytest.approx(0, abs=1e-7)
        assert float(white.std()) == pytest.approx(1, abs=1e-7)


@given(st.lists(number, min_size=2, max_size=12), st.integers(1, 11))
def test_whitening_does_not_depend_on_where_rows_end(values, cut) -> None:
    cut = min(cut, len(values) - 1)
    parts = whiten([doubles(values[:cut]), doubles(values[cut:])])
    assert torch.equal(torch.cat(parts), whiten([doubles(values)])[0])


def test_whitening_leaves_hidden_tokens_out() -> None:
    row, mask = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([True, False, True])
    [white] = whiten([row], masks=[mask], epsilon=0)
    assert white.tolist() == pytest.approx([-math.sqrt(0.5), 0, math.sqrt(0.5)])


@given(st.floats(-10, 10), st.integers(1, 60))
def test_equal_advantages_whiten_to_zero(value, count) -> None:
    [white] = whiten([torch.full((count,), value)], epsilon=0)
    assert not white.any()


@given(st.tuples(halves, halves, halves), st.sampled_from([None, 0.3, 0.7]))
def test_the_gradient_of_the_value_loss_is_its_slope_towards_the_return(place, clip) -> None:
    def loss(v: float) -> tuple[torch.Tensor, torch.Tensor, bool]:
        value = doubles([v]).requires_grad_()
        found = value_loss(value, doubles([old]), doubles([r]), clip)
        return value, found.losses_N.sum(), bool(found.clipped_N)

    # On halves no clip of 0.3 or 0.7 stands on an edge, where there is no slope.
    v, old, r = place
    value, here, clipped = loss(v)
    here.backward()
    assert value.grad.item() == pytest.approx(0.0 if clipped else v - r)
    assert here.item() >= (v - r) ** 2 / 2
    slope = (loss(v + 1e-6)[1] - loss(v - 1e-6)[1]).item() / 2e-6
    assert slope == pytest.approx(value.grad.item(), abs=1e-6)


def test_inside_the_clip_no_rounding_takes_the_gradient_away() -> None:
    # old + (value - old) is not value for most of these.
    draws = torch.Generator().manual_seed(0)
    values, old, returns = torch.rand(3, 1000, generator=draws) / 5
    values.requires_grad_()
    found = value_loss(values, old, returns, 0.2)
    found.losses_N.sum().backward()
    assert not found.clipped_N.any()
    assert torch.equal(values.grad, values.detach() - returns)


def test_no_gradient_reaches_returns_or_old_values() -> None:
    tensors = [torch.tensor([x], requires_grad=True) for x in (1.0, 0.0, 3.0)]
    value_loss(*tensors).losses_N.sum().backward()
    assert tensors[0].grad is not None
    assert tensors[1].grad is None
    assert tensors[2].grad is None


def test_explained_variance_of_a_perfect_a_constant_and_a_worse_critic() -> None:
    returns = [doubles([0.0, 1.0]), doubles([2.0])]
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance([doubles([5.0, 5.0]), doubles([5.0])], returns) == pytest.approx(0)
    assert explained_variance([doubles([2.0, 1.0]), doubles([0.0])], returns) == pytest.approx(-3)
    assert explained_variance([doubles([1.0, 2.0])], [doubles([0.5, 0.5])]) == 0.0
