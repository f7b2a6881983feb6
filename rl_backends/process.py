r"""Advantages of tokens from the rewards of steps: process supervision, and its mixture.

DeepSeekMath (arXiv:2402.03300), section 4.1.3. For the steps j of all G outputs of a problem:

.. math:: \tilde r_i^{index(j)} = \frac{r_i^{index(j)} - \mathrm{mean}(R)}{\mathrm{std}(R)}, \quad
    A_{i,t} = \sum_{index(j) \ge t} \tilde r_i^{index(j)}

where R holds the step rewards of the whole group, pooled: not a mean of means per output.

**Steps count.** The advantage is a sum. With steps that are all above the group's mean, the first
token of an output with eight of them gets twice that of one with four, and with steps below it,
twice the penalty: long chains of good steps are preferred, long chains of bad ones avoided. This
is the paper's definition, not rounding; so log the steps per output, and mix in the outcome, whose
advantage does not grow with steps, where their number drifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Literal

from stepmark.errors import DataError

from .advantages import EPSILON, Scale, group_advantages
from .steps import check_steps

__all__ = ["Tail", "mixed_advantages", "process_advantages"]

Tail = Literal["refuse", "zero"]
"""What to do with tokens behind the last step: refuse them, or give them advantage 0."""


def process_advantages(
    step_rewards: Sequence[Sequence[float | None]],
    step_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    scale: Scale = "sample",
    epsilon: float = EPSILON,
    tail: Tail = "refuse",
) -> tuple[tuple[float, ...], ...]:
    """Advantage of every sampled token of one problem's completions, in float64.

    See the module's equations. The token that ends a step still gets that step's reward. One step
    per output, on its last token, gives section 4.1.2 on every token. A step reward that is None or
    NaN abstained: it is left out of the pool and of the sums. A completion without steps adds
    nothing and gets zeros; so do all when the pool is flat.

    Args:
        step_rewards: of each completion, one per step, unitless.
        step_ends: of each completion, index of the last sampled token of each step, rising.
        lengths: sampled tokens of each completion.
        scale: which deviation of the pool divides.
        epsilon: added to the deviation.
        tail: tokens behind the last step; ``zero`` is the equation read literally, and leaves the
            end token untrained.

    Returns:
        One row per completion, one number per sampled token.

    Raises:
        DataError: the numbers of completions, scores and ends do not match, ends do not rise within
            their completion, or the last step does not end on the last token (``tail="refuse"``).

    >>> process_advantages([[1, 0], [1, 1]], [[0, 1], [0, 2]], [2, 3], scale="none")
    ((-0.5, -0.75), (0.5, 0.25, 0.25))
    """
    if not len(step_rewards) == len(step_ends) == len(lengths):
        raise DataError(
            f"A group has step rewards of {len(step_rewards)} completions, step ends of "
            f"{len(step_ends)} and lengths of {len(lengths)}; it needs one of each per completion. "
            "Give an empty row to a completion without steps."
        )
    for rewards, ends, length in zip(step_rewards, step_ends, lengths, strict=True):
        check_steps(rewards, ends, length, to_the_end=tail == "refuse")
    pool = list(chain.from_iterable(step_rewards))
    normalised = iter(group_advantages(pool, scale=scale, epsilon=epsilon))
    rows: list[tuple[float, ...]] = []
    for ends, length in zip(step_ends, lengths, strict=True):
        at_token = dict(zip(ends, islice(normalised, len(ends)), strict=True))
        rows.append(_sums_from_the_end(at_token, length))
    return tuple(rows)


def _sums_from_the_end(at_token: dict[int, float], length: int) -> tuple[float, ...]:
    total, sums = 0.0, [0.0] * length
    for token in reversed(range(length)):
        total += at_token.get(token, 0.0)
        sums[token] = total
    return tuple(sums)


def mixed_advantages(
    outcome: Sequence[float],
    process: Sequence[Sequence[float]],
    *,
    outcome_weight: float = 1.0,
    process_weight: float = 1.0,
) -> tuple[tuple[float, ...], ...]:
    r"""Advantage of every token from both kinds of supervision.

    .. math:: A_{i,t} = w_o A_i^{outcome} + w_p A_{i,t}^{process}

    The mixture is ours: DeepSeekMath compares sections 4.1.2 and 4.1.3 and does not combine them.
    Both are normalised before they are mixed, so the weights mean the same whatever the scorers'
    ranges. A completion whose outcome abstained has outcome advantage 0 and keeps its steps.

    Args:
        outcome: one per completion; see `group_advantages`.
        process: one row per completion; see `process_advantages`.
        outcome_weight: of the outcome; 0 gives process supervision alone.
        process_weight: of the steps; 0 gives outcome supervision alone.

    >>> mixed_advantages([1.0, -1.0], [[0.5, 0.0], [-0.5]], process_weight=2.0)
    ((2.0, 1.0), (-2.0,))
    """
    return tuple(
        tuple(outcome_weight * whole + process_weight * token for token in row)
        for whole, row in zip(outcome, process, strict=True)
    )
