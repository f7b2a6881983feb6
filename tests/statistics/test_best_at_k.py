"""Best of k: the exact expectation over subsets, against counting all of them."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.statistics import best_at_k

SAMPLES = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([None, 0.1, 0.5, 0.9])),
    min_size=1,
    max_size=7,
)


@given(SAMPLES, st.integers(1, 7))
def test_best_of_k_is_the_mean_over_all_subsets_where_ties_share(
    samples: list[tuple[float, float | None]], k: int
) -> None:
    k = min(k, len(samples))
    leads = []
    for subset in combinations(samples, k):
        best = max(-1.0 if rank is None else rank for _, rank in subset)
        tied = [score for score, rank in subset if (-1.0 if rank is None else rank) == best]
        leads.append(sum(tied) / len(tied))
    found = best_at_k([score for score, _ in samples], [rank for _, rank in samples], k)
    assert found == pytest.approx(sum(leads) / len(leads))


def test_a_perfect_rank_is_pass_at_k_and_a_useless_one_the_mean() -> None:
    scores = [1.0, 0.0, 0.0, 1.0, 0.0]
    assert best_at_k(scores, scores, 2) == pytest.approx(1 - 3 / 10)
    assert best_at_k(scores, [0.5] * 5, 3) == pytest.approx(0.4)
    assert best_at_k(scores, [None] * 5, 5) == pytest.approx(0.4)


@pytest.mark.parametrize(("ranks", "k"), [([0.1], 1), ([0.1, 0.2], 0), ([0.1, 0.2], 3)])
def test_what_cannot_be_chosen_from_is_refused(ranks: list[float], k: int) -> None:
    with pytest.raises(ConfigError, match=r"give one each|k must lie between 1 and n"):
        best_at_k([1.0, 0.0], ranks, k)
