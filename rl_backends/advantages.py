r"""Group-relative advantages: what a completion is worth beside the others of its problem.

All statistics are computed in float64: they are a few numbers, and rounding is what turns equal
rewards into advantages. A reward that is None or NaN abstained: it is left out of every mean and
deviation, and its advantage is 0. Rewards that are all equal teach nothing and get zeros; whether
they are is decided by max == min, never by an epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Literal, TypeGuard

from stepmark.errors import DataError

__all__ = [
    "EPSILON",
    "Baseline",
    "Scale",
    "batch_advantages",
    "decoupled_advantages",
    "group_advantages",
    "is_flat",
    "is_scored",
    "useful_groups",
]

Scale = Literal["sample", "population", "none"]
"""What the centred rewards are divided by; see `group_advantages`."""

Baseline = Literal["mean", "leave-one-out"]
"""What is subtracted from a reward: the mean of its group, or that of the others in it."""

EPSILON = 1e-6
"""Added to the standard deviation, in reward units. It is no guard: equal rewards are found by
max == min, because float rounding alone can leave a deviation larger than any small epsilon."""


def group_advantages(
    rewards: Sequence[float | None],
    *,
    scale: Scale = "sample",
    epsilon: float = EPSILON,
    baseline: Baseline = "mean",
) -> tuple[float, ...]:
    r"""Advantage of each completion over the others sampled for its problem, in float64.

    .. math:: A_i = (r_i - \bar r) / (\sigma + \epsilon)

    DeepSeekMath (arXiv:2402.03300), section 4.1.2; the paper leaves the deviation open. ``sample``
    divides by the sample deviation (n - 1; the default, as most libraries do), ``population`` by
    that with n, ``none`` by 1 (Dr. GRPO, arXiv:2503.20783).

    ``leave-one-out`` subtracts the mean of the other rewards, which does not depend on the
    completion itself (RLOO, arXiv:2402.14740, which takes ``scale="none"``); it is n / (n - 1)
    times the centred reward.

    A group with fewer than two scored rewards, or with all of them equal, gets zeros.

    Args:
        rewards: total reward of each completion of one problem, unitless; None for no reward.
        scale: which deviation divides.
        epsilon: added to the deviation.
        baseline: what is subtracted.

    Returns:
        As many numbers, which sum to zero.

    >>> group_advantages([1.0, 0.0, None], scale="none")
    (0.5, -0.5, 0.0)
    >>> group_advantages([1.0, 0.0, 0.0], scale="none", baseline="leave-one-out")
    (1.0, -0.5, -0.5)
    """
    centred = centred_rewards(rewards, baseline)
    divisor = 1.0 if scale == "none" else deviation(rewards, scale) + epsilon
    return tuple(each / divisor if each else 0.0 for each in centred)


def batch_advantages(
    groups: Sequence[Sequence[float | None]],
    *,
    scale: Literal["sample", "population"] = "sample",
    epsilon: float = EPSILON,
    baseline: Baseline = "mean",
) -> tuple[tuple[float, ...], ...]:
    r"""Advantages over the group's mean, divided by the deviation of all rewards of the batch.

    .. math:: A_{gi} = (r_{gi} - \bar r_g) / (\sigma_{batch} + \epsilon)

    Lite PPO (arXiv:2508.08221): a group whose rewards barely differ is not blown up.

    Args:
        groups: rewards of the completions of each problem; groups may differ in size.
        scale: deviation with n - 1 or with n, over all scored rewards.
        epsilon: added to the deviation.
        baseline: what is subtracted, within the group.

    >>> batch_advantages([[2.0, 0.0], [2.0, 0.0]], scale="population", epsilon=0.0)
    ((1.0, -1.0), (1.0, -1.0))
    """
    divisor = deviation(list(chain.from_iterable(groups)), scale) + epsilon
    return tuple(
        tuple(each / divisor if each else 0.0 for each in centred_rewards(group, baseline))
        for group in groups
    )


def decoupled_advantages(
    groups: Sequence[Sequence[Sequence[float | None]]],
    weights: Sequence[float],
    *,
    scale: Scale = "sample",
    epsilon: float = EPSILON,
) -> tuple[tuple[float, ...], ...]:
    r"""Advantages of several rewards: each normalised in its group, summed, whitened in the batch.

    .. math:: s_{gi} = \sum_k w_k A^{(k)}_{gi}, \quad
        A_{gi} = (s_{gi} - \bar s) / (\sigma_s + \epsilon)

    GDPO (arXiv:2601.05242). Of rewards that are summed first, the one that varies most decides, and
    different mixtures with one sum become one advantage; here each counts by its weight. The other
    way, `group_advantages` of the weighted sum, is DeepSeek-R1's and the default.

    Args:
        groups: per problem, per completion, one reward for each weight. A completion that lacks a
            reward with a weight is left out everywhere, as it is from a weighted sum.
        weights: of each reward.
        scale: which deviation divides a reward in its group; the batch is whitened by the same.
        epsilon: added to both deviations.

    Raises:
        DataError: a completion has another number of rewards than there are weights.
    """
    totals = [_decoupled_sums(group, weights, scale, epsilon) for group in groups]
    sizes = [len(group) for group in groups]
    white = group_advantages(list(chain.from_iterable(totals)), scale=scale, epsilon=epsilon)
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(white[at : at + size] for at, size in zip(starts, sizes, strict=True))


def _decoupled_sums(
    group: Sequence[Sequence[float | None]],
    weights: Sequence[float],
    scale: Scale,
    epsilon: float,
) -> list[float | None]:
    for row in group:
        if len(row) != len(weights):
            raise DataError(
                f"A completion has {len(row)} rewards and there are {len(weights)} weights; each "
                "reward needs one weight. Give one reward per term, None where it abstained."
            )
    used = [(place, weight) for place, weight in enumerate(weights) if weight]
    whole = [all(is_scored(row[place]) for place, _ in used) for row in group]
    sums = [0.0] * len(group)
    for place, weight in used:
        rewards = [row[place] if keep else None for row, keep in zip(group, whole, strict=True)]
        each = group_advantages(rewards, scale=scale, epsilon=epsilon)
        sums = [total + weight * one for total, one in zip(sums, each, strict=True)]
    return [total if keep else None for total, keep in zip(sums, whole, strict=True)]


def useful_groups(groups: Sequence[Sequence[float | None]]) -> tuple[int, ...]:
    """Places of the groups that teach something: those that are not flat.

    Dropping the others (DAPO, arXiv:2503.14476, section 3.2) takes them from the loss and its
    denominators; kept, their policy gradient is 0, and they still pay for the divergence.

    Args:
        groups: per problem its outcome rewards, or all its step rewards in one row.

    >>> useful_groups([[1.0, 1.0], [1.0, 0.0], [None, 1.0]])
    (1,)
    """
    return tuple(place for place, rewards in enumerate(groups) if not is_flat(rewards))


def is_flat(rewards: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: fewer than two scored rewards, or all of them equal.

    >>> is_flat([0.1] * 7), is_flat([1.0, None]), is_flat([1.0, 0.0])
    (True, True, False)
    """
    scored = [reward for reward in rewards if is_scored(reward)]
    return len(scored) < 2 or max(scored) == min(scored)


def is_scored(reward: float | None) -> TypeGuard[float]:
    """Whether there is a reward: None and NaN say that its verifier abstained."""
    return reward is not None and not math.isnan(reward)


def centred_rewards(
    rewards: Sequence[float | None], baseline: Baseline = "mean"
) -> tuple[float, ...]:
    """Each reward minus its baseline; 0 for an abstention, and exactly 0 in a flat group."""
    if is_flat(rewards):
        return (0.0,) * len(rewards)
    scored = [reward for reward in rewards if is_scored(reward)]
    mean = math.fsum(scored) / len(scored)
    factor = len(scored) / (len(scored) - 1) if baseline == "leave-one-out" else 1.0
    return tuple(factor * (reward - mean) if is_scored(reward) else 0.0 for reward in rewards)


def deviation(
    rewards: Sequence[float | None], scale: Literal["sample", "population"] = "sample"
) -> float:
    """Standard deviation of the scored rewards, with n - 1 or with n; 0 when they are flat."""
    if is_flat(rewards):
        return 0.0
    scored = [reward for reward in rewards if is_scored(reward)]
    mean = math.fsum(scored) / len(scored)
    freedom = len(scored) - (1 if scale == "sample" else 0)
    return math.hypot(*(reward - mean for reward in scored)) / math.sqrt(freedom)
