"""CPU time of one core, ours and the peer's in turn, block by block."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from corpora import GROUP, GSM8K, MATH, PAIRS, Row, groups
from figures import percentile, ratio, spread
from processes import Child, Hung

BLOCK_ROWS = {GSM8K: 660, MATH: 13 * GROUP, **dict.fromkeys(PAIRS, 20)}
TIMED = ("peer_tests", GSM8K, MATH)
"""The corpora with a goal for their throughput; the others are measured in the first round only."""

loops_ms: list[float] = []
"""CPU time of a fixed loop at the start of each process: the spread shows how quiet it was."""

PROFILED = 200
"""Rows of a corpus that are profiled."""

Answers = dict[str, dict[str, list[dict[str, Any]]]]
"""By grader and corpus, one answer per row."""


def pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What a grader sees of some rows."""
    return [(row.completion, row.gold) for row in rows]


@contextlib.contextmanager
def children(graders: Sequence[str], seed: int, *, pool: bool) -> Iterator[dict[str, Child]]:
    """A fresh process per grader: what it learns of the rows ends with the round."""
    with contextlib.ExitStack() as stack:
        started = {name: stack.enter_context(Child(name, seed, pool=pool)) for name in graders}
        for child in started.values():
            loops_ms.append(child.ask("calibrate", [])["cpu_ns"] / 1e6)
        yield started


def throughput(
    corpora: dict[str, list[Row]], graders: Sequence[str], rounds: int, seed: int
) -> tuple[dict[str, Any], Answers]:
    """Answers a second on every corpus, extraction and workers included, and the answers."""
    times: dict[str, list[dict[str, float]]] = {}
    answers: Answers = {grader: {} for grader in graders}
    for turn in range(rounds):
        with children(graders, seed, pool=True) as started:
            for name, rows in corpora.items():
                if turn and name not in TIMED:
                    continue
                for index, part in enumerate(groups(rows, _size(name, rows))):
                    order = graders if (turn + index) % 2 == 0 else list(reversed(graders))
                    replies = {grader: _block(started[grader], part) for grader in order}
                    seconds = {g: r["cpu_ns"] / 1e9 / len(part) for g, r in replies.items()}
                    if all(r["cpu_ns"] for r in replies.values()):
                        times.setdefault(name, []).append({**seconds, "rows": float(len(part))})
                    if turn == 0:
                        for grader, reply in replies.items():
                            answers[grader].setdefault(name, []).extend(reply["answers"])
    return {name: _rate(blocks, graders, seed) for name, blocks in times.items()}, answers


def _size(name: str, rows: Sequence[Row]) -> int:
    """Rows of a block: whole groups, and eight blocks or more where there are rows for them."""
    eighth = max(1, len(rows) // (8 * GROUP)) * GROUP
    return min(BLOCK_ROWS[name], eighth)


def _block(child: Child, rows: Sequence[Row]) -> dict[str, Any]:
    """A block's reply; where it hung, that of its rows one by one, without a time."""
    with contextlib.suppress(Hung):
        return child.ask("block", pairs(rows))
    answers = []
    for row in rows:
        try:
            answers += child.ask("block", pairs([row]))["answers"]
        except Hung as error:
            answers.append({"correct": None, "reason": "hung", "rule": str(error)})
    return {"answers": answers, "cpu_ns": 0}


def _rate(blocks: list[dict[str, float]], graders: Sequence[str], seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {"blocks": len(blocks)}
    for grader in graders:
        total = sum(block[grader] * block["rows"] for block in blocks)
        found[grader] = {"per_core_s": round(sum(block["rows"] for block in blocks) / total, 1)}
    if "peer" in graders:
        sums = [(b["peer"] * b["rows"], b["ours"] * b["rows"]) for b in blocks]
        found["ratio"] = ratio(sums, seed)
    return found


def latency(
    rows: list[Row], graders: Sequence[str], rounds: int, seed: int, *, prepared: bool
) -> tuple[dict[str, Any], list[float | None]]:
    """Time per pair on an empty cache, without workers: each pair's median over the rounds.

    Also ours of every pair by itself, in microseconds.
    """
    times: dict[str, list[list[int]]] = {grader: [[] for _ in rows] for grader in graders}
    opened: set[int] = set()
    for turn in range(rounds):
        with children(graders, seed, pool=False) as started:
            for start in range(0, len(rows), 20):
                for grader in graders if turn % 2 == 0 else list(reversed(graders)):
                    part = pairs(rows[start : start + 20])
                    with contextlib.suppress(Hung):
                        reply = started[grader].ask("each", part, prepared=prepared)
                        for offset, used in enumerate(reply["cpu_ns"]):
                            times[grader][start + offset].append(used)
                        opened |= {start + i for i, is_open in enumerate(reply["open"]) if is_open}
    each: list[float | None] = []
    found: dict[str, Any] = {"rows": len(rows), "open": [rows[i].id for i in sorted(opened)]}
    for grader in graders:
        micro = [median(used) / 1e3 if used else None for used in times[grader]]
        known = [value for value in micro if value is not None]
        best = [min(used) / 1e3 for used in times[grader] if used]
        found[grader] = {
            "untimed": [row.id for row, value in zip(rows, micro, strict=True) if value is None],
            "quietest": {"median_us": percentile(best, 0.5), "p99_us": percentile(best, 0.99)},
            "median_us": spread(known, 0.5, seed),
            "p99_us": spread(known, 0.99, seed),
            "mean_us": sum(known) / len(known),
            "slowest": _slowest(rows, micro),
        }
        each = micro if grader == "ours" else each
    return found, each


def _slowest(rows: list[Row], micro: list[float | None], count: int = 10) -> list[dict[str, Any]]:
    timed = [(value, row.id) for value, row in zip(micro, rows, strict=True) if value is not None]
    return [
        {"id": name, "us": round(value, 1)} for value, name in sorted(timed, reverse=True)[:count]
    ]


def grouped(
    rows: list[Row], graders: Sequence[str], rounds: int, seed: int, size: int
) -> dict[str, Any]:
    """Time per completion where neighbours share a gold that is read once."""
    times: dict[str, list[list[int]]] = {grader: [[] for _ in rows] for grader in graders}
    for _ in range(rounds):
        with children(graders, seed, pool=False) as started:
            for start in range(0, len(rows), 5 * size):
                part = pairs(rows[start : start + 5 * size])
                for grader in graders:
                    with contextlib.suppress(Hung):
                        reply = started[grader].ask("groups", part, size=size)
                        for offset, used in enumerate(reply["cpu_ns"]):
                            times[grader][start + offset].append(used)
    found: dict[str, Any] = {"rows": len(rows), "size": size}
    for grader in graders:
        micro = [median(used) / 1e3 for used in times[grader] if used]
        found[grader] = {
            "median_us": spread(micro, 0.5, seed),
            "p99_us": spread(micro, 0.99, seed),
            "mean_us": sum(micro) / len(micro),
        }
    return found


def opened(rows: list[Row], seed: int) -> dict[str, Any]:
    """What the pairs cost that only sympy can settle, workers included."""
    if not rows:
        return {"rows": 0}
    with Child("ours", seed) as child:
        milli = [used / 1e6 for used in child.ask("with_workers", pairs(rows))["cpu_ns"]]
    return {"rows": len(rows), "median_ms": percentile(milli, 0.5), "max_ms": max(milli)}


def imports(graders: Sequence[str], times: int) -> dict[str, Any]:
    """CPU time of an import in a fresh process, and whether sympy came along.

    Bytecode is kept in a folder of the run, written by a first import that is not counted.
    """
    names = {"ours": "stepmark.verifiers", "peer": "math_verify"}
    used: dict[str, list[float]] = {grader: [] for grader in graders}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(times + 1):
            for grader in graders:
                milli, sympy, modules = _imported(names[grader], folder)
                if turn:
                    used[grader].append(milli)
                known = {"module": names[grader], "loads_sympy": sympy, "modules": modules}
                found[grader] = known
    for grader in graders:
        found[grader]["median_ms"] = median(used[grader])
    return found


def _imported(name: str, bytecode: str) -> tuple[float, bool, int]:
    code = (
        f"import json, sys, time; start = time.process_time(); import {name}; "
        "used = (time.process_time() - start) * 1e3; "
        "print(json.dumps([used, 'sympy' in sys.modules, len(sys.modules)]))"
    )
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**kept, "PYTHONPYCACHEPREFIX": bytecode},
    )
    milli, sympy, modules = json.loads(said.stdout)
    return milli, sympy, modules


def profiles(
    corpora: dict[str, list[Row]], missed: Sequence[str], micro: list[float | None], seed: int
) -> dict[str, Any]:
    """Where our time goes on the corpora whose goal is missed.

    Of peer_tests, the pairs around the median and the slowest two in a hundred, apart.
    """
    chosen: dict[str, list[Row]] = {}
    for name in missed:
        rows = corpora[name]
        if name == "peer_tests":
            order = sorted(range(len(rows)), key=lambda index: micro[index] or 0.0)
            middle = order[int(0.4 * len(order)) : int(0.6 * len(order)) + 1]
            chosen["peer_tests, median"] = [rows[i] for i in middle]
            chosen["peer_tests, p99"] = [rows[i] for i in order[int(0.98 * len(order)) :]]
        else:
            chosen[name] = rows[:PROFILED]
    with Child("ours", seed, pool=False) as child:
        return {
            name: child.ask("profile", pairs(rows), cold=name not in corpora)
            for name, rows in chosen.items()
        }
