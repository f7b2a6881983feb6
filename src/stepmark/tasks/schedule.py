"""Which problems a training step sees: a pure function, so that a resumed run needs no state."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from stepmark.errors import ConfigError
from stepmark.seeds import derive_seed
from stepmark.types import Problem

__all__ = ["problems_for_step"]

_LONGEST_PATTERN = 1_000


def problems_for_step(
    problems_by_task: Mapping[str, Sequence[Problem]],
    weights: Mapping[str, float] | None,
    seed: int,
    step: int,
    count: int,
) -> tuple[Problem, ...]:
    """The problems of one step, whichever steps were asked for before.

    Tasks take turns in a fixed pattern in which each has its share, so that any stretch of the
    data holds the weights to within a problem or so (shares are rounded to 1/1000 where the weights
    are no ratio of small numbers). Each task goes through seeded permutations of its problems: an
    epoch holds every one of them exactly once. Where an epoch ends within a step, the next begins
    with problems that the step does not hold yet; only a task with fewer than three times
    ``count`` problems can come twice in one step.

    Args:
        problems_by_task: task name -> its problems.
        weights: task name -> how often it is drawn from relative to the others; None: all alike.
        seed: of the run.
        step: from 0.
        count: problems a step.

    Raises:
        ConfigError: no problems, a weight that is not positive, or names that do not match.
    """
    names = sorted(problems_by_task)
    if not names or not all(problems_by_task.values()):
        raise ConfigError(f"A task without problems among {names}; every task needs one or more.")
    if weights is not None and (
        sorted(weights) != names or not all(0 < value < math.inf for value in weights.values())
    ):
        raise ConfigError(
            f"Task weights are {dict(weights)}; give a number above 0 for each of {names}."
        )
    if step < 0 or count < 1:
        raise ConfigError(f"step is {step} and count is {count}; from 0 and from 1.")
    pattern = _pattern(tuple(1.0 if weights is None else float(weights[name]) for name in names))
    chosen: list[Problem] = []
    for place in range(step * count, (step + 1) * count):
        turns, slot = divmod(place, len(pattern))
        task = pattern[slot]
        drawn = turns * pattern.count(task) + pattern[:slot].count(task)
        problems = problems_by_task[names[task]]
        epoch, index = divmod(drawn, len(problems))
        order = _order(seed, names[task], epoch, len(problems), count)
        chosen.append(problems[order[index]])
    return tuple(chosen)


@lru_cache(maxsize=64)
def _pattern(weights: tuple[float, ...]) -> tuple[int, ...]:
    """A sequence of task indices, evenly spread, in which each task has its share."""
    total = sum(weights)
    shares = [Fraction(weight / total).limit_denominator(_LONGEST_PATTERN) for weight in weights]
    length = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * length) for share in shares]
    if length > _LONGEST_PATTERN or sum(counts) != length:
        counts = [max(1, round(_LONGEST_PATTERN * weight / total)) for weight in weights]
    slots = [
        ((turn + 0.5) / of_task, task)
        for task, of_task in enumerate(counts)
        for turn in range(of_task)
    ]
    return tuple(task for _, task in sorted(slots))


@lru_cache(maxsize=64)
def _order(seed: int, name: str, epoch: int, size: int, count: int) -> tuple[int, ...]:
    order = _permutation(seed, name, epoch, size)
    if epoch == 0 or size < 3 * count:
        return tuple(order)
    # Only the head changes and only the tail is looked at, so epochs do not depend on each other
    # in a chain; the middle always holds enough problems to swap with (size >= 3 * count).
    last = set(_permutation(seed, name, epoch - 1, size)[-count:])
    free = iter([place for place in range(count, size - count) if order[place] not in last])
    for place in range(count):
        if order[place] in last:
            other = next(free)
            order[place], order[other] = order[other], order[place]
    return tuple(order)


def _permutation(seed: int, name: str, epoch: int, size: int) -> list[int]:
    order = list(range(size))
    random.Random(derive_seed(seed, "epoch", name, epoch)).shuffle(order)
    return order
