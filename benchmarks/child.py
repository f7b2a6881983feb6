"""The process in which one grader is measured: a request in, a reply out, one JSON line each.

Started by `processes.Child` as ``python child.py NAME POOL``. CPU time is that of this process and
of every process below it, living or ended, so that work handed to workers is counted as well.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import pstats
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graders import GRADERS, Grader, Pair

LOOPS = 200_000
PROFILE_REPEATS = 5
PROFILE_LINES = 10


def cpu_ns() -> int:
    """CPU time so far of this process, of its ended children and of its living descendants."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(_used_ns(pid) for pid in _descendants(os.getpid()))
    return time.process_time_ns() + int((ended.ru_utime + ended.ru_stime) * 1e9) + living


def _descendants(pid: int) -> list[int]:
    try:
        listed = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it ended in between
        return []
    own = [int(word) for text in listed for word in text.split()]
    return own + [child for pid in own for child in _descendants(pid)]


def _used_ns(pid: int) -> int:
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except OSError:  # the thread ended in between
            continue
    return total


def block(grader: Grader, pairs: list[Pair]) -> dict[str, Any]:
    """A block as a caller hands it over: caches empty at its start, filled as it goes."""
    grader.forget()
    gc.collect()
    wall, start = time.perf_counter(), cpu_ns()
    results = grader.mark(pairs)
    used, wall = cpu_ns() - start, time.perf_counter() - wall
    return {"answers": grader.report(results), "cpu_ns": used, "wall_s": wall}


def each(grader: Grader, pairs: list[Pair], *, prepared: bool) -> dict[str, Any]:
    """The time of each pair alone, caches emptied before it; the gold read before, or within."""
    times, opened = [], []
    gc.collect()
    for pair in pairs:
        grader.forget()
        if prepared:
            grader.prepare(pair[1])
        before = grader.opened
        start = time.process_time_ns()
        grader.mark([pair])
        times.append(time.process_time_ns() - start)
        opened.append(grader.opened > before)
    return {"cpu_ns": times, "open": opened}


def groups(grader: Grader, pairs: list[Pair], *, size: int) -> dict[str, Any]:
    """The time of each pair where `size` neighbours share a gold; caches emptied before a group."""
    times = []
    gc.collect()
    for index, pair in enumerate(pairs):
        if index % size == 0:
            grader.forget()
        start = time.process_time_ns()
        grader.mark([pair])
        times.append(time.process_time_ns() - start)
    return {"cpu_ns": times}


def with_workers(grader: Grader, pairs: list[Pair]) -> dict[str, Any]:
    """The time of each pair alone, that of the workers included."""
    times = []
    for pair in pairs:
        grader.forget()
        start = cpu_ns()
        grader.mark([pair])
        times.append(cpu_ns() - start)
    return {"cpu_ns": times}


def calibrate(_grader: Grader, _pairs: list[Pair]) -> dict[str, Any]:
    """CPU time of a fixed loop: how fast this core is right now, whatever else shares it."""
    start = time.process_time_ns()
    total = 0
    for number in range(LOOPS):
        total += number * number % 7
    return {"cpu_ns": time.process_time_ns() - start}


def profile(grader: Grader, pairs: list[Pair], *, cold: bool) -> dict[str, Any]:
    """Where the time of some pairs goes: functions by the time in them and in what they call.

    Caches are emptied before each pair (cold), or once for all of them, as they are when measured.
    """
    profiler = cProfile.Profile()
    parts = [[pair] for pair in pairs] if cold else [pairs]
    for part in parts * PROFILE_REPEATS:
        grader.forget()
        profiler.enable()
        grader.mark(part)
        profiler.disable()
    calls = PROFILE_REPEATS * len(pairs)
    stats = pstats.Stats(profiler).get_stats_profile()
    rows = sorted(_functions(profiler), key=lambda row: row["cumulative_us"], reverse=True)
    own = sorted(rows, key=lambda row: row["own_us"], reverse=True)[:PROFILE_LINES]
    for row in rows:
        row["cumulative_us"] = round(row["cumulative_us"] / calls, 2)
        row["own_us"] = round(row["own_us"] / calls, 2)
        row["calls"] = round(row["calls"] / calls, 2)
    total = round(stats.total_tt * 1e6 / calls, 1)
    return {"us_per_item": total, "cumulative": rows[:PROFILE_LINES], "own": own}


def _functions(profiler: cProfile.Profile) -> list[dict[str, Any]]:
    found = []
    for (file, line, name), (_, calls, own, cumulative, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        if Path(file).parent == Path(__file__).parent or "disable" in name:
            continue
        place = name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        found.append(
            {
                "function": place,
                "cumulative_us": cumulative * 1e6,
                "own_us": own * 1e6,
                "calls": calls,
            }
        )
    return found


REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "block": block,
    "each": each,
    "groups": groups,
    "with_workers": with_workers,
    "calibrate": calibrate,
    "profile": profile,
}


def serve(grader: Grader, replies: Any) -> None:
    """Answer requests from standard input until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        pairs = [(text, gold) for text, gold in request.pop("pairs")]
        reply = REQUESTS[request.pop("do")](grader, pairs, **request)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def main() -> None:
    # A grader may print: its words go to standard error, the replies to a copy of standard output.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    name, pool = sys.argv[1:]
    serve_with = GRADERS[name](pool=pool == "pool")
    replies.write('{"ready": true}\n')
    replies.flush()
    serve(serve_with, replies)


if __name__ == "__main__":
    main()
