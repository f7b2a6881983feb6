from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.training.optimizer import adamw, learning_rate, set_learning_rate


@given(st.integers(1, 50), st.integers(0, 50), st.sampled_from(["constant", "linear", "cosine"]))
def test_the_rate_rises_to_its_peak_and_never_leaves_its_range(steps, warmup, schedule) -> None:
    warmup = min(warmup, steps)
    rates = [learning_rate(n, steps, 2.0, warmup, schedule) for n in range(1, steps + 1)]
    assert all(0 < rate <= 2.0 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    after = rates[max(warmup - 1, 0) :]
    assert after == sorted(after, reverse=True)
    assert max(rates) == pytest.approx(2.0)


def test_only_matrices_decay() -> None:
    model = torch.nn.Linear(2, 2)
    matrix, bias = adamw(model, learning_rate=1.0, weight_decay=0.1).param_groups
    assert (matrix["weight_decay"], bias["weight_decay"]) == (0.1, 0.0)


def test_frozen_weights_are_not_trained() -> None:
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = adamw(model, learning_rate=1.0)
    set_learning_rate(optimizer, 0.5)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1]
    assert optimizer.param_groups[0]["lr"] == 0.5
