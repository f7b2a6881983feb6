"""Shares, percentiles and ratios with their intervals."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from stepmark.statistics import wilson

DRAWS = 1000


def share(count: int, of: int) -> dict[str, Any]:
    """A share with its Wilson 95 % interval."""
    low, high = wilson(count, of)
    value = count / of if of else None
    return {"value": value, "count": count, "of": of, "low": low, "high": high}


def percentile(values: Sequence[float], level: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(level * len(ordered)) - 1)]


def ratio(blocks: Sequence[tuple[float, float]], seed: int) -> dict[str, float]:
    """How many times the second's sum the first's is, with a bootstrap interval over blocks."""
    return _bootstrapped(blocks, lambda b: sum(x for x, _ in b) / sum(y for _, y in b), seed)


def spread(values: Sequence[float], level: float, seed: int) -> dict[str, float]:
    """A percentile with its bootstrap interval over the items."""
    return _bootstrapped(values, lambda drawn: percentile(drawn, level), seed)


def _bootstrapped(
    sample: Sequence[Any], statistic: Callable[[Sequence[Any]], float], seed: int
) -> dict[str, float]:
    generator = random.Random(seed)
    drawn = [statistic(generator.choices(sample, k=len(sample))) for _ in range(DRAWS)]
    return {
        "value": statistic(sample),
        "low": percentile(drawn, 0.025),
        "high": percentile(drawn, 0.975),
    }
