"""How the next tokens are drawn from logits: vectorised, and the same whoever shares the batch.

Shapes: ``B`` rows of a batch, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stepmark.types import Sampling

__all__ = ["draw", "uniforms"]


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """One row of ``count`` numbers in [0, 1) per seed, float64; a row depends on its seed alone."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(count) for seed in seeds]
    return torch.from_numpy(np.stack(rows))


def draw(logits_BV: Tensor, uniforms_B: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The next token of every row, and its log-prob under the temperature, in nats, float32.

    Inverse CDF in float64: the token is the first whose cumulated probability exceeds the row's
    uniform number. Greedy takes the most probable token, with its log-prob at temperature 1.
    ``top_k`` keeps the k most probable tokens, then ``top_p`` the fewest that reach its mass; the
    log-prob is that of the distribution before they cut it.
    """
    if sampling.temperature == 0:
        scaled_BV = logits_BV.float()
        tokens_B = scaled_BV.argmax(-1)
    else:
        scaled_BV = logits_BV.float() / sampling.temperature
        tokens_B = _inverse_cdf(_kept(scaled_BV, sampling), uniforms_B)
    chosen_B = scaled_BV.gather(-1, tokens_B[:, None]).squeeze(-1)
    return tokens_B, chosen_B - torch.logsumexp(scaled_BV, dim=-1)


def _inverse_cdf(scaled_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    peak_B1 = scaled_BV.amax(-1, keepdim=True)
    mass_BV = (scaled_BV - peak_B1).double().exp_().cumsum_(-1)
    reached_B1 = (uniforms_B * mass_BV[:, -1])[:, None]
    return torch.searchsorted(mass_BV, reached_B1, right=True).squeeze(-1)


def _kept(scaled_BV: Tensor, sampling: Sampling) -> Tensor:
    if 0 < sampling.top_k < scaled_BV.shape[-1]:
        least_B1 = scaled_BV.topk(sampling.top_k, dim=-1).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = scaled_BV.sort(dim=-1, descending=True, stable=True)
        shares_BV = torch.softmax(sorted_BV.double(), dim=-1)
        before_BV = shares_BV.cumsum(-1) - shares_BV
        beyond_BV = torch.zeros_like(before_BV, dtype=torch.bool)
        beyond_BV.scatter_(-1, order_BV, before_BV >= sampling.top_p)
        scaled_BV = scaled_BV.masked_fill(beyond_BV, -torch.inf)
    return scaled_BV
