r"""The clipped objective of PPO, which GRPO keeps.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Clipped", "clipped_objective", "importance_ratio"]

LIMIT_NATS = 20.0
"""Log-ratios are clamped to this either way, so that no ratio is infinite."""


class Clipped(NamedTuple):
    """The objective per token, and where the clip stopped the gradient."""

    objective_N: Float[Tensor, " N"]
    """To be maximised; unitless."""
    low_N: Bool[Tensor, " N"]
    """True where the ratio fell below ``1 - low`` with a negative advantage."""
    high_N: Bool[Tensor, " N"]
    """True where the ratio rose above ``1 + high`` with a positive advantage."""


def importance_ratio(
    logps_N: Float[Tensor, " N"], old_logps_N: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    r"""How much likelier each token is under the policy than when sampled: :math:`\rho_t`."""
    return torch.exp((logps_N - old_logps_N.detach()).clamp(-LIMIT_NATS, LIMIT_NATS))


def clipped_objective(
    ratio_N: Float[Tensor, " N"], advantages_N: Float[Tensor, " N"], low: float, high: float
) -> Clipped:
    r"""The first term of eq. (3) of DeepSeekMath, which is eq. (7) of PPO (arXiv:1707.06347).

    .. math:: \min[\rho A, \mathrm{clip}(\rho, 1 - \epsilon_{low}, 1 + \epsilon_{high}) A]

    Written by cases, so that the gradient is exactly that of :math:`\rho A` where the clip does not
    act, the bounds included, and exactly 0 where it does. ``high > low`` is the clip-higher of DAPO
    (arXiv:2503.14476).

    Args:
        ratio_N: importance ratios, unitless.
        advantages_N: advantages of the tokens, unitless.
        low: how far below 1 the ratio may fall.
        high: how far above 1 the ratio may rise.
    """
    low_N = (ratio_N < 1 - low) & (advantages_N < 0)
    high_N = (ratio_N > 1 + high) & (advantages_N > 0)
    objective_N = torch.where(low_N, (1 - low) * advantages_N, ratio_N * advantages_N)
    objective_N = torch.where(high_N, (1 + high) * advantages_N, objective_N)
    return Clipped(objective_N, low_N, high_N)
