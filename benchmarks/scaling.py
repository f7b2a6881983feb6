"""Batches over worker processes: answers per second of wall time, by the number of workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from corpora import GSM8K, MATH, PAIRS, Row
from graders import WARM_UP, text_caches

from stepmark.types import Item, Problem
from stepmark.verifiers import MathVerifier, close_workers, mark_many, set_workers, worker_count

SETS = {"responses": (GSM8K, MATH), "pairs": PAIRS}
"""Corpora that are marked as one stream: each row once."""
IN_PROCESS = "in process"


def scaling(corpora: dict[str, list[Row]], rounds: int) -> dict[str, Any]:
    """Rates of the verifier as it is called, and of `mark_many` with 1, 2, 4 ... workers.

    Every measure starts with no text of the rows known: workers are fresh, their start and a few
    pairs that are in no corpus are not measured. The sides take turns.
    """
    most = worker_count()
    sides = [0, *sorted({most, *(2**k for k in range(10) if 2**k < most)})]
    found: dict[str, Any] = {}
    for name, members in SETS.items():
        items = _items([row for member in members for row in corpora[member]])
        times: dict[int, list[float]] = {side: [] for side in sides}
        try:
            for turn in range(rounds):
                for side in sides if turn % 2 == 0 else reversed(sides):
                    times[side].append(_timed(items, side))
        finally:
            close_workers()
            set_workers(None)
        found[name] = _figures(len(items), times)
    return found


def _items(rows: Sequence[Row]) -> list[Item]:
    problems: dict[str, Problem] = {}
    return [
        Item(problems.setdefault(row.gold, Problem(row.gold, "", row.gold)), row.completion)
        for row in rows
    ]


def _timed(items: list[Item], workers: int) -> float:
    verifier = MathVerifier()
    warm = _items([Row("", gold, completion, True) for completion, gold in WARM_UP])
    if workers == 0:
        verifier(warm)
        for cache in text_caches("stepmark.verifiers"):
            cache.cache_clear()
        started = time.perf_counter()
        verifier(items)
        return time.perf_counter() - started
    close_workers()
    set_workers(workers)
    list(mark_many(warm * (8 * workers), verifier=verifier))  # all of them get some
    started = time.perf_counter()
    list(mark_many(items, verifier=verifier))
    return time.perf_counter() - started


def _figures(rows: int, times: dict[int, list[float]]) -> dict[str, Any]:
    one = times[1]
    sides = {}
    for side, seconds in times.items():
        ratios = [alone / own for alone, own in zip(one, seconds, strict=True)]
        sides[str(side) if side else IN_PROCESS] = {
            "per_s": round(rows / median(seconds), 1),
            "over_one": {"value": median(ratios), "low": min(ratios), "high": max(ratios)},
        }
    return {"rows": rows, "rounds": len(one), "sides": sides}
