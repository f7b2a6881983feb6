"""Packing: every sample once, never more padded tokens than the budget allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.training import TrainingSample, pack

samples = st.lists(
    st.builds(
        lambda prompt, sampled, group: TrainingSample((1,) * prompt, (2,) * sampled, group),
        st.integers(1, 30),
        st.integers(1, 30),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(samples, st.integers(1, 120))
def test_every_sample_is_packed_exactly_once(rows: list[TrainingSample], budget: int) -> None:
    packed = [id(row) for micro in pack(rows, budget) for row in micro]
    assert sorted(packed) == sorted(id(row) for row in rows)


@given(samples, st.integers(1, 120))
def test_padded_tokens_stay_within_the_budget(rows: list[TrainingSample], budget: int) -> None:
    for micro in pack(rows, budget):
        padded = len(micro) * max(row.length for row in micro)
        assert padded <= budget or len(micro) == 1


@given(samples, st.integers(1, 120))
def test_packing_is_deterministic(rows: list[TrainingSample], budget: int) -> None:
    first, second = pack(rows, budget), pack(rows, budget)
    assert [[id(row) for row in micro] for micro in first] == [
        [id(row) for row in micro] for micro in second
    ]


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="token budget"):
        pack([], 0)


def test_a_sample_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="0 prompt tokens"):
        TrainingSample((), (1,))
