from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.rl_backends.aggregation import denominators, token_weights
from stepmark.rl_backends.clipping import (
    clipped_objective,
    engine_weights,
    importance_ratio,
    sequence_ratio,
)

token = st.tuples(st.floats(-3, 0), st.floats(-3, 0))
completions = st.lists(st.lists(token, min_size=1, max_size=5), min_size=1, max_size=4)
levels = st.sampled_from(["token", "sequence", "geometric"])
corrections = st.sampled_from(["truncate", "mask"])


def doubles(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flat(rows):
    one, two = zip(*(token for row in rows for token in row), strict=True)
    return doubles(one), doubles(two), [len(row) for row in rows]


@given(completions, st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.floats(0.01, 0.5))
def test_sequence_ratios_are_the_objective_of_gspo_in_value_and_gradient(rows, each, bound) -> None:
    logps, old, lengths = flat(rows)
    advantages = doubles(each[: len(rows)])
    leaf = logps.clone().requires_grad_()
    ratio = sequence_ratio(leaf, old, lengths)
    spread = advantages.repeat_interleave(torch.tensor(lengths))
    clipped = clipped_objective(ratio, spread, bound, bound).objective_N
    weights = token_weights(lengths, denominators(lengths), "sequence-mean", like=leaf)
    ours = (weights * clipped).sum()
    (found,) = torch.autograd.grad(ours, leaf)

    # Eq. (5), written out: one ratio per completion, its geometric mean, and the mean over them.
    leaf = logps.clone().requires_grad_()
    parts = zip(torch.split(leaf, lengths), torch.split(old, lengths), advantages, strict=True)
    terms = []
    for now, before, advantage in parts:
        s = ((now - before).mean()).exp()
        terms.append(torch.minimum(s * advantage, s.clamp(1 - bound, 1 + bound) * advantage))
    whole = torch.stack(terms).mean()
    (expected,) = torch.autograd.grad(whole, leaf)
    assert ours.item() == pytest.approx(whole.item(), abs=1e-12)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-9)


@given(completions)
def test_a_completion_of_one_token_has_its_tokens_ratio(rows) -> None:
    logps, old, lengths = flat([row[:1] for row in rows])
    expected = importance_ratio(logps, old)
    assert sequence_ratio(logps, old, lengths).tolist() == pytest.approx(expected.tolist())


@given(completions)
def test_on_policy_every_ratio_is_one_and_passes_the_gradient_of_its_token(rows) -> None:
    logps, _, lengths = flat(rows)
    for kind in ("token", "sequence"):
        leaf = logps.clone().requires_grad_()
        ratio = (
            importance_ratio(leaf, logps)
            if kind == "token"
            else sequence_ratio(leaf, logps, lengths)
        )
        assert torch.equal(ratio, torch.ones_like(ratio))
        ratio.sum().backward()
        assert torch.equal(leaf.grad, torch.ones_like(leaf))


@given(completions, st.integers(0, 4))
def test_ratios_do_not_depend_on_micro_batches(rows, cut) -> None:
    logps, old, lengths = flat(rows)
    whole = sequence_ratio(logps, old, lengths).tolist()
    parts = []
    for some in (rows[:cut], rows[cut:]):
        if some:
            parts += sequence_ratio(*flat(some)).tolist()
    assert parts == whole


@given(completions, levels, corrections)
def test_an_engine_that_is_the_model_has_weight_one(rows, level, correction) -> None:
    logps, _, lengths = flat(rows)
    weights = engine_weights(logps, logps, lengths, level=level, correction=correction)
    assert torch.equal(weights, torch.ones_like(weights))


@given(completions, levels, st.floats(1, 5), st.floats(0, 1))
def test_engine_weights_stay_in_their_bounds(rows, level, high, low) -> None:
    trainer, engine, lengths = flat(rows)
    raw = engine_weights(trainer, engine, lengths, level=level, high=None)
    cut = engine_weights(trainer, engine, lengths, level=level, high=high)
    kept = engine_weights(
        trainer, engine, lengths, level=level, correction="mask", high=high, low=low
    )
    for one, truncated, masked in zip(raw.tolist(), cut.tolist(), kept.tolist(), strict=True):
        assert truncated == min(one, high)
        assert masked == (one if low <= one <= high else 0.0)


@given(completions, st.sampled_from(["sequence", "geometric"]))
def test_one_weight_covers_a_completion(rows, level) -> None:
    trainer, engine, lengths = flat(rows)
    weights = engine_weights(trainer, engine, lengths, level=level, high=None)
    logs = (trainer - engine).split(lengths)
    for row, log in zip(weights.split(lengths), logs, strict=True):
        total = float(log.sum() if level == "sequence" else log.mean())
        assert row.tolist() == pytest.approx([math.exp(max(-20.0, min(20.0, total)))] * len(row))


def test_engine_weights_carry_no_gradient() -> None:
    leaf = torch.zeros(2, requires_grad=True)
    assert not engine_weights(leaf, torch.ones(2), [2]).requires_grad


@given(st.floats(-800, 800), st.floats(-800, 800), levels)
def test_no_token_makes_a_ratio_infinite(one, two, level) -> None:
    a, b = doubles([one]), doubles([two])
    assert bool(sequence_ratio(a, b, [1]).isfinite())
    assert bool(engine_weights(a, b, [1], level=level, high=None).isfinite())


@given(st.floats(-2, 2), st.floats(0.1, 3), st.floats(0.05, 0.9), st.floats(0.05, 1.0))
def test_the_clip_only_ever_lowers_the_objective(advantage, ratio, low, high) -> None:
    found = clipped_objective(doubles([ratio]), doubles([advantage]), low, high).objective_N
    bounded = max(1 - low, min(1 + high, ratio)) * advantage
    assert found.item() == pytest.approx(min(ratio * advantage, bounded), abs=1e-12)
