from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.rl_backends.preferences import (
    loss_at_reference,
    pair_logps,
    pairs_from_group,
    preference_losses,
    preference_metrics,
    reference_margins,
)

LOSSES = ("sigmoid", "ipo-sum", "ipo-mean")
losses = st.sampled_from(LOSSES)
logps = st.lists(st.floats(-5, 0), min_size=1, max_size=4)
pair = st.tuples(logps, logps)
betas = st.sampled_from([0.05, 0.1, 0.5, 2.0])
scores = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=9)


def doubles(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flat(pairs):
    """Tokens of all completions end to end, and how many each has."""
    rows = [row for pair in pairs for row in pair]
    return doubles([x for row in rows for x in row]), [len(row) for row in rows]


def single(chosen: float, rejected: float, ref: tuple[float, float] = (0.0, 0.0)):
    """One pair of one token each, with gradient to the policy's log-probs."""
    leaf = doubles([chosen, rejected]).requires_grad_()
    return leaf, pair_logps(leaf, doubles(ref), [1, 1])


@given(st.lists(pair, min_size=1, max_size=4), losses, betas)
def test_the_first_loss_is_that_of_the_reference(pairs, loss, beta) -> None:
    tokens, lengths = flat(pairs)
    found = preference_losses(pair_logps(tokens, tokens, lengths), loss=loss, beta=beta)
    expected = loss_at_reference(loss, beta)
    assert found.tolist() == pytest.approx([expected] * len(pairs), rel=1e-12)
    if loss == "sigmoid":
        assert expected == pytest.approx(math.log(2), abs=1e-15)


@given(pair, losses, betas, st.sampled_from([0.0, 0.1, 0.3]))
def test_the_gradient_is_that_of_finite_differences(policy, loss, beta, smoothing) -> None:
    smoothing = smoothing if loss == "sigmoid" else 0.0
    tokens, lengths = flat([policy])
    shape = torch.linspace(-2, 0, len(tokens), dtype=torch.float64)

    def total(at: torch.Tensor) -> torch.Tensor:
        pairs = pair_logps(at, shape, lengths)
        return preference_losses(pairs, loss=loss, beta=beta, label_smoothing=smoothing).sum()

    leaf = tokens.clone().requires_grad_()
    total(leaf).backward()
    for place in range(len(tokens)):
        moved = torch.zeros_like(tokens)
        moved[place] = 1e-6
        slope = float(total(tokens + moved) - total(tokens - moved)) / 2e-6
        assert slope == pytest.approx(leaf.grad[place].item(), abs=1e-4, rel=1e-6)


@given(st.floats(-3, 0), st.floats(-3, 0), betas)
def test_dpo_makes_the_chosen_likelier_and_the_rejected_less(chosen, rejected, beta) -> None:
    leaf, pairs = single(chosen, rejected)
    preference_losses(pairs, beta=beta).sum().backward()
    assert leaf.grad[0] < 0 < leaf.grad[1]
    assert leaf.grad[0].item() == pytest.approx(-leaf.grad[1].item())
    margin = chosen - rejected
    assert leaf.grad[0].item() == pytest.approx(-beta / (1 + math.exp(beta * margin)))


@given(st.floats(-3, 3), betas)
def test_dpo_of_a_pair_turned_round_differs_by_the_margin(h, beta) -> None:
    # -log sigmoid(x) + log sigmoid(-x) = -x
    there, back = (preference_losses(single(*ends)[1], beta=beta) for ends in ((h, 0.0), (0.0, h)))
    assert (there - back).item() == pytest.approx(-beta * h, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.1, 0.25, 0.4])
def test_conservative_dpo_is_least_where_the_labels_are_as_wrong_as_it_says(smoothing) -> None:
    best = math.log((1 - smoothing) / smoothing) / 0.5

    def at(h: float) -> tuple[float, float]:
        leaf, pairs = single(h, 0.0)
        loss = preference_losses(pairs, beta=0.5, label_smoothing=smoothing).sum()
        loss.backward()
        return loss.item(), leaf.grad[0].item()

    assert at(best)[1] == pytest.approx(0, abs=1e-12)
    assert at(best)[0] < min(at(best - 0.1)[0], at(best + 0.1)[0])
    assert at(best + 1)[1] > 0


@pytest.mark.parametrize("loss", ["ipo-sum", "ipo-mean"])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_ipo_is_zero_at_its_margin_and_goes_back_beyond(loss, tau) -> None:
    best = 1 / (2 * tau)
    assert preference_losses(single(best, 0.0)[1], loss=loss, beta=tau).item() == 0.0
    leaf, pairs = single(best + 1, 0.0)
    preference_losses(pairs, loss=loss, beta=tau).sum().backward()
    assert leaf.grad[0] > 0


@given(pair, betas)
def test_both_kinds_of_ipo_agree_on_single_tokens_only(policy, tau) -> None:
    one = [row[:1] for row in policy]
    tokens, lengths = flat([one])
    each = [
        preference_losses(pair_logps(tokens, None, lengths), loss=loss, beta=tau).item()
        for loss in ("ipo-sum", "ipo-mean")
    ]
    assert each[0] == pytest.approx(each[1])
    long = pair_logps(doubles([-1.0, -1.0, -4.0]), None, [2, 1])
    assert reference_margins(long).item() == 2.0
    assert reference_margins(long, per_token=True).item() == 3.0
    assert preference_losses(long, loss="ipo-sum", beta=0.5).item() == 1.0
    assert preference_losses(long, loss="ipo-mean", beta=0.5).item() == 4.0


@given(st.lists(pair, min_size=1, max_size=5), losses, st.integers(0, 4))
def test_any_split_into_micro_batches_leaves_every_loss_unchanged(pairs, loss, cut) -> None:
    tokens, lengths = flat(pairs)
    whole = preference_losses(pair_logps(tokens, tokens / 2, lengths), loss=loss)
    parts = []
    for some in (pairs[:cut], pairs[cut:]):
        if some:
            part, sizes = flat(some)
            parts += preference_losses(pair_logps(part, part / 2, sizes), loss=loss).tolist()
    assert parts == pytest.approx(whole.tolist(), rel=1e-12)


@given(pair)
def test_no_gradient_reaches_the_reference(policy) -> None:
    tokens, lengths = flat([policy])
    leaf, ref = tokens.clone().requires_grad_(), (tokens / 2).requires_grad_()
    preference_losses(pair_logps(leaf, ref, lengths)).sum().backward()
    assert ref.grad is None
    assert leaf.grad is not None


@given(st.floats(-3, 0), st.floats(-3, 0), st.floats(-3, 0))
def test_without_a_reference_it_is_as_if_it_were_uniform(chosen, rejected, level) -> None:
    _, uniform = single(chosen, rejected, (level, level))
    free = pair_logps(doubles([chosen, rejected]), None, [1, 1])
    assert preference_losses(free).item() == pytest.approx(preference_losses(uniform).item())


def test_a_small_margin_of_long_completions_is_not_rounded_away() -> None:
    logps = torch.rand(4000, generator=torch.Generator().manual_seed(0)) - 1
    ref = logps - 1e-6
    found = reference_margins(pair_logps(logps, ref, [3000, 1000]))
    each = logps.double() - ref.double()
    assert found.item() == pytest.approx((each[:3000].sum() - each[3000:].sum()).item(), abs=1e-9)


def test_metrics_have_the_names_of_trl_and_average_over_pairs() -> None:
    pairs = pair_logps(doubles([-1, -1, -4, -3, -2]), doubles([-1, -2, -3, -3, -4]), [2, 1, 1, 1])
    found = preference_metrics(pairs, beta=0.5)
    assert {name: value.tolist() for name, value in found.items()} == {
        "rewards/chosen": [0.5, 0.0],
        "rewards/rejected": [-0.5, 1.0],
        "rewards/accuracies": [1.0, 0.0],
        "rewards/margins": [1.0, -1.0],
        "logps/chosen": [-2.0, -3.0],
        "logps/rejected": [-4.0, -2.0],
    }


def test_at_the_reference_no_pair_counts_as_accurate() -> None:
    assert preference_metrics(single(-1.0, -1.0, (-1.0, -1.0))[1], 0.1)["rewards/accuracies"] == 0


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 completions"):
        pair_logps(torch.zeros(3), None, [1, 1, 1])


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"beta": 0.0}, "beta is 0"),
        ({"label_smoothing": 0.5}, "label_smoothing is 0.5"),
        ({"label_smoothing": -0.1}, "label_smoothing is -0.1"),
        ({"label_smoothing": 0.1, "loss": "ipo-sum"}, "ipo-sum"),
    ],
)
def test_settings_that_are_no_loss_are_refused(given_, said) -> None:
    with pytest.raises(ConfigError, match=said):
        preference_losses(single(0.0, 0.0)[1], **given_)


@given(scores)
def test_every_right_completion_is_paired_with_every_wrong_one(values) -> None:
    right = [i for i, s in enumerate(values) if s is not None and s >= 1]
    wrong = [i for i, s in enumerate(values) if s is not None and s < 1]
    found = [(pair.chosen, pair.rejected) for pair in pairs_from_group(values)]
    assert found == [(i, j) for i in right for j in wrong]


@given(scores, st.sampled_from(["right-over-wrong", "margin", "best-over-worst"]))
def test_a_pair_is_two_scored_completions_the_better_one_first(values, by) -> None:
    for pair in pairs_from_group(values, by=by):
        high, low = values[pair.chosen], values[pair.rejected]
        assert high is not None
        assert low is not None
        assert pair.margin == high - low > 0
    nan = [math.nan if value is None else value for value in values]
    assert pairs_from_group(nan, by=by) == pairs_from_group(values, by=by)


@given(scores, st.sampled_from([0.25, 0.5, 1.0]))
def test_by_margin_every_pair_that_is_far_enough_apart_is_made(values, margin) -> None:
    found = {
        (pair.chosen, pair.rejected)
        for pair in pairs_from_group(values, by="margin", margin=margin)
    }
    known = [(i, s) for i, s in enumerate(values) if s is not None]
    assert found == {(i, j) for i, a in known for j, b in known if a - b >= margin}


def test_a_margin_is_not_missed_by_rounding() -> None:
    assert 0.3 - 0.1 < 0.2
    assert len(pairs_from_group([0.3, 0.1], by="margin", margin=0.2)) == 1


@given(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9), st.integers(0, 3))
def test_a_unanimous_group_gives_no_pair(value, count, abstentions) -> None:
    values = [value] * count + [None] * abstentions
    for by in ("right-over-wrong", "margin", "best-over-worst"):
        assert pairs_from_group(values, by=by) == ()


@given(scores, st.integers(0, 12))
def test_a_cap_keeps_the_widest_pairs_and_spreads_them(values, cap) -> None:
    every = pairs_from_group(values, by="margin")
    kept = pairs_from_group(values, by="margin", cap=cap)
    assert len(kept) == min(cap, len(every))
    assert set(kept) <= set(every)
    assert list(kept) == sorted(kept)
    widest = sorted((pair.margin for pair in every), reverse=True)[: len(kept)]
    assert sorted((pair.margin for pair in kept), reverse=True) == widest


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_cap_uses_each_completion_before_it_uses_one_twice(rights, wrongs) -> None:
    cap = min(rights, wrongs)
    kept = pairs_from_group([1.0] * rights + [0.0] * wrongs, cap=cap)
    assert len({pair.chosen for pair in kept}) == cap
    assert len({pair.rejected for pair in kept}) == cap


def test_right_is_what_reaches_the_bar() -> None:
    found = pairs_from_group([0.9, 0.4, 0.6], right_from=0.5)
    assert [pair[:2] for pair in found] == [(0, 1), (2, 1)]
