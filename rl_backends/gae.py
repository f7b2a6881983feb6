r"""What PPO adds to the clipped objective: rewards per token, advantages from a critic, its loss.

PPO (arXiv:1707.06347) with the generalised advantages of Schulman et al. (arXiv:1506.02438) and the
per-token reward of InstructGPT (arXiv:2203.02155): a penalty for leaving the reference on every
sampled token, and the reward of the completion on its last one.

The value at index t is the critic's estimate of the state *before* token t was sampled: it has the
index of the log-prob that predicts the token, so critic and policy share one shift.

Rows are ragged: one 1-D tensor per completion, one number per sampled token, never padded. Numbers
are computed in float64 and given back in the type of the rows. Nothing here carries gradient but
`value_loss`.

Legend of shape suffixes: T sampled tokens of one completion, N those of a micro-batch, flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .steps import check_steps

__all__ = [
    "Estimates",
    "StepReward",
    "ValueLoss",
    "explained_variance",
    "generalized_advantages",
    "kl_rewards",
    "shaped_rewards",
    "step_rewards",
    "value_loss",
    "whiten",
]

StepReward = Literal["difference", "raw"]
"""How step scores become rewards: each score minus the one before it, or each score itself."""


class Estimates(NamedTuple):
    """What GAE gives for each completion, without gradient."""

    advantages: list[Tensor]
    """As they are: `whiten` comes after, over the whole batch."""
    returns: list[Tensor]
    """Advantage plus value, before any whitening: what the critic learns."""


class ValueLoss(NamedTuple):
    """The critic's loss per token, and where the clip stopped its gradient."""

    losses_N: Float[Tensor, " N"]
    clipped_N: Bool[Tensor, " N"]


def kl_rewards(
    old_logps_T: Float[Tensor, " T"], ref_logps_T: Float[Tensor, " T"], beta: float
) -> Float[Tensor, " T"]:
    r"""The penalty :math:`-\beta (\log \pi_{old} - \log \pi_{ref})_t` of each sampled token.

    InstructGPT (arXiv:2203.02155), section 3.5: the estimator ``k1``, taken when the tokens were
    sampled. As a reward ``k1`` is unbiased in value and gradient, which it is not as a loss; it is
    not clamped, so that the sum over a completion stays the log-ratio of the whole.

    >>> kl_rewards(torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -2.0]), beta=0.5).tolist()
    [-0.5, 0.0]
    """
    # Adding 0 turns the -0.0 of equal log-probs into 0.0, which reads better in a log.
    return -beta * (old_logps_T.detach() - ref_logps_T.detach()) + 0.0


def step_rewards(
    scores: Sequence[float | None],
    ends: Sequence[int],
    length: int,
    kind: StepReward = "difference",
) -> Float[Tensor, " T"]:
    r"""The reward of each step, on the step's last token; 0 on all other tokens; float64.

    .. math:: r_{index(j)} = s_j - s_{j-1}, \quad s_0 = 0

    ``difference`` telescopes: the rewards of a completion sum to the score of its last step,
    however many steps it takes, so with gamma 1 repeating a step changes no return. ``raw`` gives
    :math:`s_j` itself, and every further step with a positive score raises the return: a policy
    can then earn by going on. A step without a score adds nothing; the next difference is taken
    from the last score there was.

    Args:
        scores: one per step, in [0, 1]; None where the scorer abstained.
        ends: index of the last sampled token of each step, rising.
        length: sampled tokens of the completion.
        kind: difference or raw.

    Raises:
        DataError: scores and ends do not match, or the ends do not rise within the completion.

    >>> step_rewards([0.5, 0.5, 0.75], [0, 2, 3], 4).tolist()
    [0.5, 0.0, 0.0, 0.25]
    >>> step_rewards([0.5, 0.5, 0.75], [0, 2, 3], 4, kind="raw").tolist()
    [0.5, 0.0, 0.5, 0.75]
    """
    check_steps(scores, ends, length)
    rewards_T = torch.zeros(length, dtype=torch.float64)
    before = 0.0
    for score, end in zip(scores, ends, strict=True):
        if score is None or math.isnan(score):
            continue
        rewards_T[end] = score - before
        if kind == "difference":
            before = score
    return rewards_T


def shaped_rewards(
    old_logps: Sequence[Float[Tensor, " T"]],
    ref_logps: Sequence[Float[Tensor, " T"]] | None,
    rewards: Sequence[float],
    *,
    beta: float,
    steps: Sequence[Float[Tensor, " T"]] | None = None,
) -> list[Float[Tensor, " T"]]:
    r"""The reward of every token: divergence, then the outcome on the last sampled token.

    .. math:: r_t = -\beta (\log \pi_{old} - \log \pi_{ref})_t + \text{step}_t + 1[t = |o|]\, R

    The outcome stands on the last token that was sampled, the end token where there is one, and
    never one place after it.

    Args:
        old_logps: under the policy that sampled, nats; their lengths are those of the completions.
        ref_logps: under the reference, nats; None without the penalty.
        rewards: total outcome reward of each completion, unitless. A completion without a reward
            (its verifier abstained) has no place here: leave it out, or give its tokens weight 0.
        beta: weight of the penalty.
        steps: `step_rewards` of each completion, already weighted; None without a step scorer.

    Raises:
        ValueError: a completion without tokens, a reward that is no number, rows that do not match.
    """
    shaped: list[Tensor] = []
    for place, (old_T, reward) in enumerate(zip(old_logps, rewards, strict=True)):
        if not old_T.numel() or not math.isfinite(reward):
            raise ValueError(
                f"Completion {place} has {old_T.numel()} sampled tokens and the reward {reward}; "
                "it needs a token and a finite reward. Leave completions without a reward out."
            )
        row_T = torch.zeros(old_T.shape, dtype=torch.float64)
        if ref_logps is not None and beta:
            row_T = row_T + kl_rewards(old_T.double(), ref_logps[place].double(), beta)
        if steps is not None:
            row_T = row_T + steps[place].to(row_T)
        row_T[-1] += reward
        shaped.append(row_T.to(old_T))
    return shaped


def generalized_advantages(
    rewards: Sequence[Float[Tensor, " T"]],
    values: Sequence[Float[Tensor, " T"]],
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    next_values: Sequence[float | None] | None = None,
    masks: Sequence[Bool[Tensor, " T"]] | None = None,
) -> Estimates:
    r"""Generalised advantages and returns of each completion.

    .. math:: \delta_t = r_t + \gamma V_{t+1} - V_t, \quad
        A_t = \delta_t + \gamma\lambda A_{t+1}, \quad \text{return}_t = A_t + V_t

    GAE (arXiv:1506.02438), eq. (16), with :math:`V_T = 0` behind the last token. With both 1,
    :math:`A_t` is the sum of later rewards minus :math:`V_t`.

    Args:
        rewards: of each token; see `shaped_rewards`.
        values: the critic's, of the state before each token.
        gamma: discount per token.
        lam: 1 trusts the rewards alone, 0 the critic's next value.
        next_values: value of the state behind the last token, for completions that were cut and are
            to be bootstrapped; None for those that ended. By default all are terminal: an answer
            that was cut is wrong.
        masks: False on tokens that the policy did not sample (a tool's output): they are skipped as
            if they were not there; their advantage and return are 0.

    Raises:
        ValueError: rewards, values and masks do not match in shape.
    """
    result = Estimates([], [])
    ends = next_values if next_values is not None else [None] * len(rewards)
    kept = (
        masks if masks is not None else [torch.ones_like(row, dtype=torch.bool) for row in values]
    )
    for rewards_T, values_T, end, mask_T in zip(rewards, values, ends, kept, strict=True):
        if not rewards_T.shape == values_T.shape == mask_T.shape:
            raise ValueError(
                f"Rewards, values and mask of a completion have the shapes {tuple(rewards_T.shape)}"
                f", {tuple(values_T.shape)} and {tuple(mask_T.shape)}; each must hold one number "
                "per sampled token."
            )
        sampled = values_T.detach()[mask_T].double()
        found = _backward(rewards_T[mask_T].tolist(), sampled.tolist(), gamma, lam, end or 0.0)
        advantages = torch.tensor(found, dtype=torch.float64, device=values_T.device)
        for rows, numbers in zip(result, (advantages, advantages + sampled), strict=True):
            row_T = torch.zeros_like(values_T, requires_grad=False)
            row_T[mask_T] = numbers.to(row_T)
            rows.append(row_T)
    return result


def _kept(masks: Sequence[Tensor] | None, rows: Sequence[Tensor]) -> Sequence[Tensor]:
    """The masks, or masks that hide nothing."""
    if masks is not None:
        return [mask.bool() for mask in masks]
    return [torch.ones_like(row, dtype=torch.bool) for row in rows]


def _backward(
    rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float, end: float
) -> list[float]:
    found: list[float] = []
    later, advantage = end, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * later - value + gamma * lam * advantage
        later = value
        found.append(advantage)
    return found[::-1]


def whiten(
    rows: Sequence[Float[Tensor, " T"]],
    *,
    masks: Sequence[Bool[Tensor, " T"]] | None = None,
    scale: Literal["sample", "population"] = "sample",
    epsilon: float = 1e-8,
) -> list[Float[Tensor, " T"]]:
    r"""The rows, shifted and scaled so that all their tokens together have mean 0, deviation 1.

    .. math:: (x_t - \bar x) / \sqrt{\mathrm{Var}(x) + \epsilon}

    Over all tokens of the batch, never per row: per row, a long wrong completion would look as good
    as a short right one. Tokens that are all equal, or a single one, become zeros.

    Args:
        rows: advantages of each completion.
        masks: False on tokens to leave out; they become 0.
        scale: variance with n - 1 or with n.
        epsilon: added to the variance.

    >>> [row.tolist() for row in whiten([torch.tensor([1.0]), torch.tensor([2.0, 3.0])], epsilon=0)]
    [[-1.0], [0.0, 1.0]]
    """
    kept = _kept(masks, rows)
    flat = [row.detach()[mask].double() for row, mask in zip(rows, kept, strict=True)]
    every = torch.cat(flat) if flat else torch.zeros(0)
    mean, factor = 0.0, 0.0
    if every.numel() > 1 and bool(every.max() > every.min()):
        mean = float(every.mean())
        spread = float(every.var(correction=1 if scale == "sample" else 0)) + epsilon
        factor = 1 / math.sqrt(spread) if spread > 0 else 0.0
    whitened = [torch.zeros_like(row, requires_grad=False) for row in rows]
    for row, mask, numbers in zip(whitened, kept, flat, strict=True):
        row[mask] = ((numbers - mean) * factor).to(row)
    return whitened


def value_loss(
    values_N: Float[Tensor, " N"],
    old_values_N: Float[Tensor, " N"],
    returns_N: Float[Tensor, " N"],
    clip: float | None = 0.2,
) -> ValueLoss:
    r"""The critic's loss at each token, to be minimised; gradient to ``values`` only.

    .. math:: \tfrac12 \max[(V - R)^2, (V_{old} + \mathrm{clip}(V - V_{old}, -c, c) - R)^2]

    The clipped form is that of the first published code of PPO, not of the paper (eq. 9 is the
    square alone, which ``clip=None`` gives). Written by cases: where the clipped value is worse, it
    counts and the gradient is exactly 0.

    Args:
        values_N: the critic's, of the state before each token.
        old_values_N: the same when the advantages were computed.
        returns_N: from `generalized_advantages`.
        clip: how far the value may move from the old one; None does not clip.
    """
    returns_N, old_N = returns_N.detach(), old_values_N.detach()
    plain_N = (values_N - returns_N).square()
    if clip is None:
        return ValueLoss(plain_N / 2, torch.zeros_like(values_N, dtype=torch.bool))
    moved_N = values_N.detach() - old_N
    held_N = (old_N + moved_N.clamp(-clip, clip) - returns_N).square()
    # Inside the clip both squares are the same number but for rounding, which must not decide.
    clipped_N = (moved_N.abs() > clip) & (held_N > plain_N.detach())
    return ValueLoss(torch.where(clipped_N, held_N, plain_N) / 2, clipped_N)


def explained_variance(
    values: Sequence[Float[Tensor, " T"]], returns: Sequence[Float[Tensor, " T"]]
) -> float:
    r"""How much of the returns the critic foresaw: :math:`1 - \mathrm{Var}(R - V)/\mathrm{Var}(R)`.

    1 is perfect, 0 as good as a constant, below 0 worse than one; 0 where returns do not vary.

    >>> explained_variance([torch.tensor([1.0, 2.0])], [torch.tensor([1.5, 2.5])])
    1.0
    """
    values_N = torch.cat([row.detach().double() for row in values])
    returns_N = torch.cat([row.detach().double() for row in returns])
    spread = float(returns_N.var(correction=0))
    if spread == 0 or bool(returns_N.max() == returns_N.min()):
        return 0.0
    return 1 - float((returns_N - values_N).var(correction=0)) / spread
