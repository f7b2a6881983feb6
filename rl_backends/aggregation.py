r"""How losses of tokens become one number, without the answer depending on micro-batches.

Every aggregation is a weighted sum over tokens whose weights are known once the whole minibatch is
known; `denominators` is called on the minibatch, `token_weights` on each micro-batch of it, and
micro-batches simply add up.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from stepmark.errors import ConfigError

__all__ = ["Aggregation", "denominators", "token_weights"]

Aggregation = Literal["sequence-mean", "token-mean", "sequence-sum", "constant"]
"""``sequence-mean`` is eq. (3) of DeepSeekMath: the mean over completions of the mean over tokens;
with `clipping.sequence_ratio` it is the sequence-level objective of GSPO (arXiv:2507.18071).
``token-mean`` (DAPO, arXiv:2503.14476): the mean over all tokens of the minibatch.
``sequence-sum``: the mean over completions of the sum over tokens, the policy gradient as it is
derived. ``constant`` (Dr. GRPO, arXiv:2503.20783): the same, divided by a fixed length."""


def denominators(lengths: Sequence[int]) -> Mapping[str, float]:
    """What a minibatch of completions with these token counts is divided by.

    >>> denominators([4, 2])
    {'sequences': 2.0, 'tokens': 6.0}
    """
    return {"sequences": float(len(lengths)), "tokens": float(sum(lengths))}


def token_weights(
    lengths: Sequence[int],
    weights: Mapping[str, float],
    aggregation: Aggregation,
    constant_length: int | None = None,
    like: Tensor | None = None,
) -> Float[Tensor, " N"]:
    """The weight of each token of a micro-batch in the objective of its whole minibatch.

    Args:
        lengths: token counts of the micro-batch's completions, in order.
        weights: `denominators` of the whole minibatch.
        aggregation: which mean.
        constant_length: the fixed length, in tokens, of ``constant``.
        like: a tensor whose dtype and device the weights take.

    Returns:
        N weights; over a whole minibatch they sum to 1 (for ``sequence-sum`` to the mean length,
        for ``constant`` to that over the fixed length).

    Raises:
        ConfigError: ``constant`` without a length.

    >>> token_weights([1, 2], {"sequences": 2.0, "tokens": 3.0}, "sequence-mean").tolist()
    [0.5, 0.25, 0.25]
    """
    if aggregation == "sequence-mean":
        each = [1 / (weights["sequences"] * length) for length in lengths]
    elif aggregation == "token-mean":
        each = [1 / weights["tokens"]] * len(lengths)
    elif aggregation == "sequence-sum":
        each = [1 / weights["sequences"]] * len(lengths)
    else:
        if constant_length is None:
            raise ConfigError(
                'algorithm.aggregation is "constant" and algorithm.constant_length is none. '
                "Set the length to divide by, in tokens; rollout.max_tokens is usual."
            )
        each = [1 / (weights["sequences"] * constant_length)] * len(lengths)
    dtype = torch.float32 if like is None else like.dtype
    device = None if like is None else like.device
    weight_per_row = torch.tensor(each, dtype=dtype, device=device)
    return weight_per_row.repeat_interleave(torch.tensor(lengths, device=device))
