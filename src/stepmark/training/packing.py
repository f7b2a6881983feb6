"""Which samples share a forward pass, so that little of it is padding and it fits in memory."""

from __future__ import annotations

from collections.abc import Sequence

from stepmark.errors import ConfigError

from .sample import TrainingSample

__all__ = ["pack", "pack_end_to_end", "pack_lengths"]


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
    check_budget(token_budget)
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
    rows = _units(samples)
    size = max((len(row) for row in rows), default=1)
    longest = [max(sample.length for sample in row) for row in rows]
    batches = pack_lengths(longest, max(token_budget // size, min(token_budget, 1)))
    return [[sample for place in places for sample in rows[place]] for places in batches]


def check_budget(token_budget: int) -> None:
    """Refuse a budget that holds nothing.

    Raises:
        ConfigError: it is less than one token.
    """
    if token_budget < 1:
        raise ConfigError(
            f"The token budget of a micro-batch is {token_budget}; it must be at least 1 "
            "(16384 is usual: lower it when memory runs out)."
        )


def _units(samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
    """Single samples and pairs, in the given order."""
    units: dict[tuple[str, int], list[TrainingSample]] = {}
    for place, sample in enumerate(samples):
        unit = ("row", place) if sample.pair is None else ("pair", sample.pair)
        units.setdefault(unit, []).append(sample)
    return list(units.values())


def pack_end_to_end(
    samples: Sequence[TrainingSample], token_budget: int
) -> list[list[TrainingSample]]:
    """Micro-batches for rows that lie end to end and share their prompts: nothing is padded.

    Samples of one prompt stay together; tokens count once, a prompt once for all its samples. More
    samples than the budget holds are divided, and each part has the prompt again. Largest first.
    A pair stays together, one after the other, also where it exceeds the budget by itself.

    Args:
        samples: in any order; the same samples give the same micro-batches.
        token_budget: tokens of a forward pass, prompts included.

    Raises:
        ConfigError: the budget is less than one token.
    """
    check_budget(token_budget)
    parts = [part for family in _families(samples) for part in _parts(family, token_budget)]
    batches: list[tuple[list[TrainingSample], int]] = []
    for part in sorted(parts, key=_tokens, reverse=True):
        cost = _tokens(part)
        for place, (batch, held) in enumerate(batches):
            if held + cost <= token_budget:
                batches[place] = ([*batch, *part], held + cost)
                break
        else:
            batches.append((part, cost))
    return [batch for batch, _ in batches]


Family = list[list[TrainingSample]]
"""Units, of one sample or a pair, behind the same prompt."""


def _families(samples: Sequence[TrainingSample]) -> list[Family]:
    families: dict[tuple[int, ...], Family] = {}
    for unit in _units(samples):
        families.setdefault(unit[0].prompt_ids, []).append(unit)
    return list(families.values())


def _parts(family: Family, token_budget: int) -> list[list[TrainingSample]]:
    """The units of one prompt in as few parts as the budget allows, longest first."""
    prompt = len(family[0][0].prompt_ids)
    parts: list[tuple[list[TrainingSample], int]] = []
    for cost, unit in sorted(
        ((_tokens(unit) - prompt, unit) for unit in family), key=lambda pair: -pair[0]
    ):
        for place, (part, held) in enumerate(parts):
            if held + cost <= token_budget:
                parts[place] = ([*part, *unit], held + cost)
                break
        else:
            parts.append((unit, prompt + cost))
    return [part for part, _ in parts]


def _tokens(samples: Sequence[TrainingSample]) -> int:
    """Tokens of these samples end to end, each prompt once."""
    prompts = {sample.prompt_ids for sample in samples}
    return sum(map(len, prompts)) + sum(len(sample.ids) for sample in samples)
