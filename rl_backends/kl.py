r"""Estimators of the divergence of the policy from the reference, token by token.

With :math:`d = \log \pi_{ref} - \log \pi` for the sampled token (Schulman, "Approximating KL
divergence", 2020):

* ``k1`` :math:`= -d`: unbiased, of high variance; as a loss its gradient is 1 on every token, which
  does nothing in expectation, so it is for looking, not for training;
* ``k2`` :math:`= d^2 / 2`: biased in value, its gradient is that of the true divergence;
* ``k3`` :math:`= e^d - d - 1`: never negative, low variance: eq. (4) of DeepSeekMath.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LIMIT_NATS", "Estimator", "kl_tokens"]

Estimator = Literal["k1", "k2", "k3"]

LIMIT_NATS = 20.0
"""``d`` is clamped to this either way before it is used: e^20 is 5e8, and one absurd token must not
decide a step. Beyond the limit the gradient is 0."""


def kl_tokens(
    logps_N: Float[Tensor, " N"], ref_logps_N: Float[Tensor, " N"], estimator: Estimator = "k3"
) -> Float[Tensor, " N"]:
    r"""Divergence from the reference at each sampled token, in nats; with gradient to ``logps``.

    ``k3`` is eq. (4) of DeepSeekMath (arXiv:2402.03300):
    :math:`\pi_{ref}/\pi - \log(\pi_{ref}/\pi) - 1`.

    Args:
        logps_N: log-probability of each sampled token under the policy, nats.
        ref_logps_N: the same under the reference; no gradient is taken.
        estimator: which of the three.

    Returns:
        N numbers; for ``k2`` and ``k3`` none is negative.
    """
    d_N = (ref_logps_N.detach() - logps_N).clamp(-LIMIT_NATS, LIMIT_NATS)
    if estimator == "k1":
        return -d_N
    if estimator == "k2":
        return d_N.square() / 2
    return torch.expm1(d_N) - d_N
