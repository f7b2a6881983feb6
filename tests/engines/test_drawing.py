"""Drawing follows the distribution, and cuts keep what they say."""

from __future__ import annotations

import pytest
import torch

from stepmark import EngineError, Sampling
from stepmark.engines.drawing import draw, uniforms

LOGITS = torch.tensor([2.0, 1.0, 0.0, -torch.inf, -1.0])


def shares(sampling: Sampling, count: int = 20_000) -> torch.Tensor:
    """Share of each token when the uniform numbers are evenly spread: exact to 1 / count."""
    spread_B = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens_B, _ = draw(LOGITS.expand(count, -1), spread_B, sampling)
    return torch.bincount(tokens_B, minlength=len(LOGITS)) / count


def test_shares_are_the_tempered_probabilities() -> None:
    for temperature in (0.5, 1.0, 2.0):
        wanted = torch.softmax(LOGITS / temperature, -1)
        assert torch.allclose(shares(Sampling(temperature)), wanted, atol=1e-4)


def test_top_k_keeps_k_tokens_and_their_proportions() -> None:
    wanted = torch.softmax(LOGITS, -1)
    wanted[2:] = 0
    assert torch.allclose(shares(Sampling(top_k=2)), wanted / wanted.sum(), atol=1e-4)


@pytest.mark.parametrize("width", [8, 300])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_top_k_keeps_exactly_k_of_equal_tokens_those_of_the_lowest_ids(
    top_k: int, width: int
) -> None:
    logits_BV = torch.zeros(100, width)
    logits_BV[:, 3], logits_BV[:, 0] = 1.0, -1.0
    spread_B = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    tokens_B, _ = draw(logits_BV, spread_B, Sampling(top_k=top_k))
    assert sorted(set(tokens_B.tolist())) == sorted([3, 1, 2, 4, 5][:top_k])


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0), Sampling(top_k=2), Sampling(0.5)])
@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ([0.0, torch.nan, 1.0], "logits of nan in 1 of 2 rows"),
        ([0.0, torch.inf, 1.0], "logits of inf in 1 of 2 rows"),
        ([-torch.inf] * 3, "logits of -inf in 1 of 2 rows"),
    ],
)
def test_logits_that_are_no_numbers_end_in_an_error_that_says_what_to_do(
    logits: list[float], said: str, sampling: Sampling
) -> None:
    logits_BV = torch.tensor([[0.0, 1.0, 2.0], logits])
    with pytest.raises(EngineError, match=f"{said}.*load it in float32"):
        draw(logits_BV, torch.tensor([0.5, 0.5], dtype=torch.float64), sampling)


def test_top_p_keeps_the_fewest_tokens_that_reach_the_mass() -> None:
    wanted = torch.softmax(LOGITS, -1)
    wanted[2:] = 0
    assert torch.allclose(shares(Sampling(top_p=0.7)), wanted / wanted.sum(), atol=1e-4)


def test_extreme_uniform_numbers_never_draw_an_impossible_token() -> None:
    edges_B = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    logits = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf]).expand(2, -1)
    assert draw(logits, edges_B, Sampling())[0].tolist() == [1, 2]


def test_uniform_numbers_depend_on_their_seed_alone() -> None:
    together = uniforms([3, 4, 5], 6)
    assert torch.equal(together[1:2], uniforms([4], 6))
    assert torch.equal(together[:, :2], uniforms([3, 4, 5], 2))
    assert bool(((together >= 0) & (together < 1)).all())


def test_a_large_vocabulary_is_drawn_as_by_one_plain_cumulative_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    for words in (1, 127, 128, 129, 5000):
        logits_V = 3 * torch.randn(words, generator=generator)
        logits_V[1::3] = -torch.inf
        spread_B = (torch.arange(999, dtype=torch.float64) + 0.5) / 999
        spread_B[-1] = 1 - 2**-53
        tokens_B, logps_B = draw(logits_V.expand(len(spread_B), -1), spread_B, Sampling())
        shares_V = torch.softmax(logits_V.double(), -1)
        plain_B = torch.searchsorted(shares_V.cumsum(-1), spread_B[:-1], right=True)
        assert torch.equal(tokens_B[:-1], plain_B)
        assert int(tokens_B[-1]) == int(shares_V.nonzero().max())
        assert torch.allclose(logps_B, shares_V[tokens_B].log().float(), atol=1e-5)
