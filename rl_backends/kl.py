r"""Estimators of the divergence of the policy from the reference, token by token.

With :math:`d = \log \pi_{ref} - \log \pi` for the sampled token (Schulman, "Approximating KL
divergence", 2020):

* ``k1`` :math:`= -d`: unbiased, of high variance; as a loss its gradient is 1 on every token, which
  does nothing in expectation, so it is for looking and for rewards (see `gae.kl_rewards`), not for
  a loss;
* ``k2`` :math:`= d^2 / 2`: biased in value, its gradient is that of the true divergence;
* ``k3`` :math:`= e^d - d - 1`: never negative, low variance: eq. (4) of DeepSeekMath. Its value is
  unbiased, its gradient as a loss is not: in expectation it is that of
  :math:`KL(\pi_{ref} || \pi)`, the other direction (arXiv:2506.09477);
* ``k3-unbiased``: the value of ``k3`` with the gradient :math:`-d`, whose expectation under the
  policy is the gradient of :math:`KL(\pi || \pi_{ref})`.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["LIMIT_NATS", "Estimator", "kl_is_clamped", "kl_tokens"]

Estimator = Literal["k1", "k2", "k3", "k3-unbiased"]

LIMIT_NATS = 20.0
"""``d`` is clamped to this either way before it is used: e^20 is 5e8, and one absurd token must not
decide a step. Beyond the limit the gradient is 0."""


def kl_tokens(
    logps_N: Float[Tensor, " N"],
    ref_logps_N: Float[Tensor, " N"],
    estimator: Estimator = "k3",
    *,
    ratio_N: Float[Tensor, " N"] | None = None,
    limit: float | None = LIMIT_NATS,
) -> Float[Tensor, " N"]:
    r"""Divergence from the reference at each sampled token, in nats; with gradient to ``logps``.

    ``k3`` is eq. (4) of DeepSeekMath (arXiv:2402.03300):
    :math:`\pi_{ref}/\pi - \log(\pi_{ref}/\pi) - 1`.

    ``k3-unbiased`` has the gradient of the true divergence on the policy's own samples. On samples
    of an older policy it needs the importance ratio: :math:`\rho\, k3`, with the gradient
    :math:`-\rho\, d` (DeepSeek-V3.2, arXiv:2512.02556).

    Args:
        logps_N: log-probability of each sampled token under the policy, nats.
        ref_logps_N: the same under the reference; no gradient is taken.
        estimator: which of the four.
        ratio_N: importance ratio of each token, which then weighs it; no gradient is taken.
        limit: d is clamped to this either way, nats; None does not clamp.

    Returns:
        N numbers; but for ``k1`` none is negative.
    """
    d_N = ref_logps_N.detach() - logps_N
    if limit is not None:
        d_N = d_N.clamp(-limit, limit)
    if estimator == "k1":
        kl_N = -d_N
    elif estimator == "k2":
        kl_N = d_N.square() / 2
    else:
        kl_N = torch.expm1(d_N) - d_N
    if estimator == "k3-unbiased":
        # The gradient of k2 is -d; its value is taken away again.
        half_N = d_N.square() / 2
        kl_N = kl_N.detach() + (half_N - half_N.detach())
    return kl_N if ratio_N is None else ratio_N.detach() * kl_N


def kl_is_clamped(
    logps_N: Float[Tensor, " N"], ref_logps_N: Float[Tensor, " N"], limit: float = LIMIT_NATS
) -> Bool[Tensor, " N"]:
    """True at each token that `kl_tokens` clamps: its gradient is 0, so log how many there are."""
    return (ref_logps_N - logps_N).detach().abs() > limit
