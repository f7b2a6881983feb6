r"""Group-relative advantages: what a completion is worth beside the others of its problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeGuard

__all__ = ["EPSILON", "Scale", "group_advantages", "is_flat"]

Scale = Literal["sample", "population", "none"]
"""What the centred rewards are divided by; see `group_advantages`."""

EPSILON = 1e-6
"""Added to the standard deviation, in reward units. It is no guard: equal rewards are found by
max == min, because float rounding alone can leave a deviation larger than any small epsilon."""


def group_advantages(
    rewards: Sequence[float | None], *, scale: Scale = "sample", epsilon: float = EPSILON
) -> tuple[float, ...]:
    r"""Advantage of each completion over the others sampled for its problem, in float64.

    .. math:: A_i = (r_i - \bar r) / (\sigma + \epsilon)

    DeepSeekMath (arXiv:2402.03300), section 4.1.2; the paper leaves the deviation open. ``sample``
    divides by the sample deviation (n - 1; the default, as most libraries do), ``population`` by
    that with n, ``none`` by 1 (Dr. GRPO, arXiv:2503.20783).

    A reward that is None or NaN abstained: it is left out of mean and deviation, and its advantage
    is 0. A group with fewer than two scored rewards, or with all of them equal, gets zeros.

    Args:
        rewards: total reward of each completion of one problem, unitless; None for no reward.
        scale: which deviation divides.
        epsilon: added to the deviation.

    Returns:
        As many numbers, which sum to zero.

    >>> group_advantages([1.0, 0.0, None], scale="none")
    (0.5, -0.5, 0.0)
    """
    scored = [reward for reward in rewards if is_scored(reward)]
    if is_flat(rewards):
        return (0.0,) * len(rewards)
    mean = math.fsum(scored) / len(scored)
    divisor = 1.0
    if scale != "none":
        freedom = len(scored) - (1 if scale == "sample" else 0)
        squares = math.fsum((reward - mean) ** 2 for reward in scored)
        divisor = math.sqrt(squares / freedom) + epsilon
    return tuple((reward - mean) / divisor if is_scored(reward) else 0.0 for reward in rewards)


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
