"""Which samples share a forward pass, so that little of it is padding and it fits in memory."""

from __future__ import annotations

from collections.abc import Sequence

from stepmark.errors import ConfigError

from .sample import TrainingSample

__all__ = ["pack", "pack_lengths"]


def pack_lengths(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Places of the rows of each micro-batch: longest rows first, ties in the given order.

    Rows of one micro-batch are padded to its longest, and ``rows * longest <= token_budget`` holds
    but for a row that is longer than the budget by itself: it gets its own micro-batch. Longest
    first, because memory that does not suffice should show at the start. On a CPU rows sorted by
    length are as fast as packing with a block mask.

    Raises:
        ConfigError: the budget is less than one token.

    >>> pack_lengths([3, 9, 4, 5], token_budget=10)
    [[1], [3, 2], [0]]
    """
    if token_budget < 1:
        raise ConfigError(
            f"The token budget of a micro-batch is {token_budget}; it must be at least 1 "
            "(16384 is usual: lower it when memory runs out)."
        )
    batches: list[list[int]] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * longest <= token_budget:
            batches[-1].append(place)
        else:
            batches.append([place])
            longest = lengths[place]
    return batches


def pack(samples: Sequence[TrainingSample], token_budget: int) -> list[list[TrainingSample]]:
    """The samples in micro-batches, every one exactly once; see `pack_lengths` for the rule.

    The two samples of a pair stay together, one after the other, in a micro-batch.

    Args:
        samples: in any order; the same samples give the same micro-batches.
        token_budget: padded tokens of a forward pass, prompts included.

    Raises:
        ConfigError: the budget is less than one token.
    """
    units: dict[tuple[str, int], list[TrainingSample]] = {}
    for place, sample in enumerate(samples):
        unit = ("row", place) if sample.pair is None else ("pair", sample.pair)
        units.setdefault(unit, []).append(sample)
    rows = list(units.values())
    size = max((len(row) for row in rows), default=1)
    longest = [max(sample.length for sample in row) for row in rows]
    batches = pack_lengths(longest, max(token_budget // size, min(token_budget, 1)))
    return [[sample for place in places for sample in rows[place]] for places in batches]
