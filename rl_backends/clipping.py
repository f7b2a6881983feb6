r"""The clipped objective of PPO, which GRPO keeps, its ratios, and the engine's share in them.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "Clipped",
    "Correction",
    "Level",
    "clipped_objective",
    "engine_weights",
    "importance_ratio",
    "sequence_ratio",
]

Level = Literal["token", "sequence", "geometric"]
"""What a ratio is the product over: one token; a completion; that, to the power 1 / tokens."""

Correction = Literal["truncate", "mask"]
"""What is done to an engine's weight out of bounds: lowered to the bound, or set to 0."""

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


def sequence_ratio(
    logps_N: Float[Tensor, " N"], old_logps_N: Float[Tensor, " N"], lengths: Sequence[int]
) -> Float[Tensor, " N"]:
    r"""The ratio of each token's completion, with gradient to that token.

    .. math:: s_i = \exp\left(\frac1{|o_i|} \sum_t \log\rho_{i,t}\right), \quad
        s_{i,t} = \mathrm{sg}[s_i]\, \pi_{i,t} / \mathrm{sg}[\pi_{i,t}]

    GSPO (arXiv:2507.18071), eq. (7), the geometric mean, in the form of its eqs. (13) and (14): the
    value is that of the completion, and each token's gradient meets that token's own advantage.
    With one advantage per completion and the mean over its tokens it is eq. (5) exactly, in value
    and in gradient. Clip ranges are a thousand times narrower than PPO's (3e-4 and 4e-4).

    Args:
        logps_N: log-probs under the policy, completions end to end.
        old_logps_N: the same when sampled; no gradient is taken.
        lengths: sampled tokens of each completion.
    """
    log_ratio_N = logps_N.detach() - old_logps_N.detach()
    mean_N = _of_completion(log_ratio_N, lengths, mean=True).clamp(-LIMIT_NATS, LIMIT_NATS)
    return torch.exp(mean_N) * torch.exp(logps_N - logps_N.detach())


def engine_weights(
    trainer_logps_N: Float[Tensor, " N"],
    engine_logps_N: Float[Tensor, " N"],
    lengths: Sequence[int],
    *,
    level: Level = "token",
    correction: Correction = "truncate",
    high: float | None = 3.0,
    low: float = 0.0,
) -> Float[Tensor, " N"]:
    r"""What each token's loss is multiplied by, because an engine sampled it and not the trainer.

    .. math:: w = \pi_{trainer}(o) / \pi_{engine}(o)

    Both under the same weights: the ratio is that of two programs' arithmetic, and 1 where the
    engine is the model itself. Truncated per token it is TIS (Yao et al., "Your efficient RL
    framework secretly brings you off-policy RL training", 2025); masked per token it is the
    double-sided mask of IcePop (Ling team, 2025).

    Args:
        trainer_logps_N: of the sampled tokens under the weights that sampled, as the trainer
            computes them, completions end to end.
        engine_logps_N: the same, as the engine gave them.
        lengths: sampled tokens of each completion.
        level: per token, or one weight for all tokens of a completion.
        correction: what is done to a weight out of bounds.
        high: largest weight; None for no bound.
        low: least weight that ``mask`` keeps; ``truncate`` has no lower bound.

    Returns:
        N weights without gradient.
    """
    log_N = (trainer_logps_N - engine_logps_N).detach()
    if level != "token":
        log_N = _of_completion(log_N, lengths, mean=level == "geometric")
    weights_N = torch.exp(log_N.clamp(-LIMIT_NATS, LIMIT_NATS))
    if correction == "truncate":
        return weights_N if high is None else weights_N.clamp(max=high)
    keep_N = weights_N >= low
    if high is not None:
        keep_N &= weights_N <= high
    return torch.where(keep_N, weights_N, torch.zeros_like(weights_N))


def _of_completion(values_N: Tensor, lengths: Sequence[int], *, mean: bool) -> Tensor:
    """The sum or mean over each completion's tokens, at each of them."""
    rows = torch.split(values_N, list(lengths))
    each = [(row.mean() if mean else row.sum()).expand(row.shape) for row in rows]
    return torch.cat(each)


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
