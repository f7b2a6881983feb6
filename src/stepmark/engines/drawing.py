"""How the next tokens are drawn from logits: vectorised, and the same whoever shares the batch.

Shapes: ``B`` rows of a batch, ``V`` vocabulary, ``K`` stretches of ``S`` tokens of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stepmark.errors import EngineError
from stepmark.types import Sampling

__all__ = ["draw", "uniforms"]

STRETCH = 128
"""Tokens whose probabilities are summed first; cumulated one by one in the stretch that is hit."""


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """One row of ``count`` numbers in [0, 1) per seed, float64; a row depends on its seed alone."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(count) for seed in seeds]
    return torch.from_numpy(np.stack(rows))


def draw(logits_BV: Tensor, uniforms_B: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The next token of every row, and its log-prob under the temperature, in nats, float32.

    Inverse CDF, cumulated in float64: the token is the first whose cumulated probability exceeds
    the row's uniform number. Greedy takes the most probable token, with its log-prob at
    temperature 1. ``top_k`` keeps the k most probable tokens, then ``top_p`` the fewest that reach
    its mass; the log-prob is that of the distribution before they cut it. Of equally probable
    tokens at the edge of ``top_k``, those of the lowest ids are kept.

    Raises:
        EngineError: a row's logits are not numbers: NaN, inf, or -inf for every token.
    """
    scaled_BV = logits_BV.float()
    if sampling.temperature not in (0, 1):
        scaled_BV = scaled_BV / sampling.temperature
    mass = _Mass(scaled_BV)
    if not bool(mass.norm_B.isfinite().all()):
        raise _no_numbers(scaled_BV, mass.norm_B)
    if sampling.temperature == 0:
        tokens_B = scaled_BV.argmax(-1)
    else:
        kept_BV = _kept(scaled_BV, sampling)
        tokens_B = (mass if kept_BV is scaled_BV else _Mass(kept_BV)).token_at(uniforms_B)
    return tokens_B, scaled_BV.gather(-1, tokens_B[:, None]).squeeze(-1) - mass.norm_B


def _no_numbers(scaled_BV: Tensor, norm_B: Tensor) -> EngineError:
    bad = (~norm_B.isfinite()).nonzero()[:, 0]
    row_V = scaled_BV[bad[0]]
    found = "nan" if bool(row_V.isnan().any()) else str(float(row_V.max()))
    return EngineError(
        f"The model gave logits of {found} in {len(bad)} of {len(norm_B)} rows; each row needs "
        "finite ones (-inf for some tokens is allowed). Check the checkpoint for NaN weights, and "
        "where it is sampled in float16 or bfloat16, load it in float32."
    )


class _Mass:
    """Probabilities of tokens over that of the most probable one, and their sums."""

    def __init__(self, scaled_BV: Tensor) -> None:
        rows, words = scaled_BV.shape
        peak_B1 = scaled_BV.amax(-1, keepdim=True)
        mass_BV = scaled_BV.new_zeros(rows, -(-words // STRETCH) * STRETCH)
        torch.sub(scaled_BV, peak_B1, out=mass_BV[:, :words]).exp_()
        self.mass_BKS = mass_BV.unflatten(-1, (-1, STRETCH))
        self.ends_BK = self.mass_BKS.sum(-1, dtype=torch.float64).cumsum_(-1)
        self.norm_B = peak_B1[:, 0] + self.ends_BK[:, -1].log().float()

    def token_at(self, uniforms_B: Tensor) -> Tensor:
        """The first token of each row whose cumulated share exceeds the number."""
        rows_B = torch.arange(len(uniforms_B), device=uniforms_B.device)
        reached_B = uniforms_B * self.ends_BK[:, -1]
        below_B = torch.nextafter(self.ends_BK[:, -1], torch.zeros_like(reached_B))
        stretch_B1 = _first_above(self.ends_BK, torch.minimum(reached_B, below_B))
        inside_BS = self.mass_BKS[rows_B, stretch_B1[:, 0]].double().cumsum_(-1)
        starts_BK = torch.nn.functional.pad(self.ends_BK[:, :-1], (1, 0))
        left_B = reached_B - starts_BK.gather(-1, stretch_B1)[:, 0]
        # Sums in another order differ in the last digit: the hit stays within its stretch.
        below_B = torch.nextafter(inside_BS[:, -1], torch.zeros_like(left_B))
        place_B1 = _first_above(inside_BS, torch.minimum(left_B, below_B))
        return (stretch_B1 * STRETCH + place_B1)[:, 0]


def _first_above(sums_BX: Tensor, numbers_B: Tensor) -> Tensor:
    return torch.searchsorted(sums_BX, numbers_B[:, None], right=True)


def _kept(scaled_BV: Tensor, sampling: Sampling) -> Tensor:
    if 0 < sampling.top_k < scaled_BV.shape[-1]:
        scaled_BV = scaled_BV.masked_fill(~_largest(scaled_BV, sampling.top_k), -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = scaled_BV.sort(dim=-1, descending=True, stable=True)
        shares_BV = torch.softmax(sorted_BV.double(), dim=-1)
        before_BV = shares_BV.cumsum(-1) - shares_BV
        beyond_BV = torch.zeros_like(before_BV, dtype=torch.bool)
        beyond_BV.scatter_(-1, order_BV, before_BV >= sampling.top_p)
        scaled_BV = scaled_BV.masked_fill(beyond_BV, -torch.inf)
    return scaled_BV


def _largest(scaled_BV: Tensor, count: int) -> Tensor:
    """Where the so many largest of each row are; of equal ones at the edge, the first.

    ``topk`` breaks such ties as it likes, which may depend on the batch.
    """
    least_B1 = scaled_BV.topk(count, dim=-1).values[:, -1:]
    kept_BV = scaled_BV >= least_B1
    if bool((kept_BV.sum(-1) > count).any()):
        above_BV = scaled_BV > least_B1
        tied_BV = kept_BV & ~above_BV
        room_B1 = count - above_BV.sum(-1, keepdim=True)
        kept_BV = above_BV | (tied_BV & (tied_BV.cumsum(-1) <= room_B1))
    return kept_BV
