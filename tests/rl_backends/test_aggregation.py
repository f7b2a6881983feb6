from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.rl_backends.aggregation import denominators, token_weights

sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)
ways = st.sampled_from(["sequence-mean", "token-mean", "sequence-sum", "constant"])


def weights_of(lengths, whole, way) -> list[float]:
    like = torch.zeros(0, dtype=torch.float64)
    return token_weights(lengths, denominators(whole), way, 5, like=like).tolist()


@given(sizes, ways, st.integers(0, 6))
def test_a_token_weighs_the_same_in_every_micro_batch(lengths, way, cut) -> None:
    parts = [weights_of(some, lengths, way) for some in (lengths[:cut], lengths[cut:]) if some]
    assert [x for part in parts for x in part] == weights_of(lengths, lengths, way)


@given(sizes, ways)
def test_what_the_weights_of_a_minibatch_sum_to(lengths, way) -> None:
    mean = sum(lengths) / len(lengths)
    expected = {"sequence-mean": 1, "token-mean": 1, "sequence-sum": mean, "constant": mean / 5}
    assert sum(weights_of(lengths, lengths, way)) == pytest.approx(expected[way])


@given(sizes)
def test_completions_count_alike_under_the_sequence_mean_only(lengths) -> None:
    def shares(way):
        found = torch.tensor(weights_of(lengths, lengths, way), dtype=torch.float64)
        return [float(row.sum()) for row in found.split(lengths)]

    assert shares("sequence-mean") == pytest.approx([1 / len(lengths)] * len(lengths))
    for way in ("token-mean", "sequence-sum", "constant"):
        first = shares(way)[0] / lengths[0]
        assert shares(way) == pytest.approx([first * length for length in lengths])
