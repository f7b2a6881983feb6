"""The worker pool under items that never end: all come back, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from stepmark import Item, Problem, Reason, Verdict
from stepmark.verifiers import (
    MathVerifier,
    close_workers,
    load_verifier,
    mark_many,
    verify,
    worker_count,
    workers,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc"),
]

HANGS = textwrap.dedent(
    """
    def hangs(completion, gold):
        while True:
            pass
    """
)

SLOW = "{" + "+".join(rf"\sin({k}x)^{k}\cos({k}y)^{k}" for k in range(2, 14)) + "}^2"


def processes() -> dict[int, list[str]]:
    """Process id -> state, parent, group, session of everything that runs."""
    found: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it ended while we looked
    return found


def children() -> set[int]:
    """Process ids whose parent is this process."""
    return {pid for pid, (_, parent, *_) in processes().items() if int(parent) == os.getpid()}


def session_of(leader: int) -> set[int]:
    """The processes that are left of a session."""
    return {pid for pid, fields in processes().items() if int(fields[3]) == leader}


def left_after_a_while(before: set[int]) -> list[bytes]:
    """Commands of children that were not there before and do not end, zombies among them.

    The resource tracker of multiprocessing lives as long as this process.
    """
    deadline = time.monotonic() + 10
    while True:
        paths = [Path(f"/proc/{pid}/cmdline") for pid in children() - before]
        commands = [path.read_bytes() for path in paths if path.exists()]
        left = [command for command in commands if b"resource_tracker" not in command]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def test_hanging_items_come_back_from_any_thread_and_leave_no_process(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(HANGS)
    before = children()
    mark = load_verifier(f"{tmp_path / 'hang.py'}:hangs?timeout_s=0.3")
    items = [Item(Problem(f"p/{n}", "", "1"), "1") for n in range(10)]
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.extend(mark(items)))
    thread.start()
    easy = 0
    while thread.is_alive():
        assert verify(r"\boxed{\frac12}", gold="0.5").correct
        easy += 1
        time.sleep(0.05)
    thread.join()
    assert [verdict.reason for verdict in verdicts] == [Reason.TOO_SLOW] * 10
    assert [verdict.score for verdict in verdicts] == [0.0] * 10
    assert easy > 10
    close_workers()
    assert left_after_a_while(before) == []


def test_thirty_symbolic_comparisons_past_their_deadline_leave_no_process() -> None:
    before = children()
    # The rules in process leave these open; a deadline that sympy cannot keep stands for a
    # comparison that never ends, and each breach costs a worker.
    items = [
        Item(
            Problem(f"p/{n}", "", rf"{SLOW}+\sin({2 * n}x)-2\sin({n}x)\cos({n}x)"),
            rf"\boxed{{{SLOW}}}",
        )
        for n in range(2, 32)
    ]
    verdicts: list[Verdict] = []
    mark = MathVerifier(timeout_s=0.005)
    thread = threading.Thread(target=lambda: verdicts.extend(mark(items)))
    thread.start()
    slowest_s = 0.0
    while thread.is_alive():
        started = time.monotonic()
        assert verify(r"\boxed{\frac12}", gold="0.5").correct
        slowest_s = max(slowest_s, time.monotonic() - started)
        time.sleep(0.05)
    assert len(verdicts) == 30
    assert {verdict.reason for verdict in verdicts} <= {Reason.TOO_SLOW, Reason.EQUAL}
    assert sum(verdict.reason is Reason.TOO_SLOW for verdict in verdicts) > 5
    assert slowest_s < 1, "easy items do not wait for hard ones"
    close_workers()
    assert left_after_a_while(before) == []


class Size(NamedTuple):
    """What must not grow."""

    processes: int
    files: int
    threads: int
    caller_mb: float
    workers_mb: float


def size() -> Size:
    """Of this process and of all that it started."""
    table = processes()
    family = {os.getpid()}
    while more := {pid for pid, row in table.items() if int(row[1]) in family} - family:
        family |= more
    return Size(
        processes=len(family),
        files=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        caller_mb=megabytes(os.getpid()),
        workers_mb=max((megabytes(pid) for pid in family - {os.getpid()}), default=0.0),
    )


def megabytes(pid: int) -> float:
    """Memory of a process that is not shared with others; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6


def check_growth(before: Size) -> None:
    """Nothing has grown, once processes that were killed are reaped."""
    deadline = time.monotonic() + 5
    while (after := size()).processes > before.processes and time.monotonic() < deadline:
        time.sleep(0.1)
    assert after.processes <= before.processes, (before, after)
    assert after.files <= before.files, (before, after)
    assert after.threads <= before.threads, (before, after)
    assert after.caller_mb < before.caller_mb + 20, (before, after)
    assert after.workers_mb < before.workers_mb + 20, (before, after)


def test_a_hundred_calls_past_their_deadline_leave_the_pool_as_it_was() -> None:
    calls = [(range(10**13),)]  # it hears no signal
    workers.run_all("compare", sum, calls * 4, timeout_s=0.1)
    before = size()
    started = time.monotonic()
    outcomes = workers.run_all("compare", sum, calls * 100, timeout_s=0.1)
    took_s = time.monotonic() - started
    assert outcomes == [("too_slow", None, 2)] * 100
    assert took_s < 2 * 100 / worker_count() * (0.1 + 0.5)
    check_growth(before)
    assert workers.run_all("compare", divmod, [(7, 2)], timeout_s=30)[0].value == (3, 1)


def test_ten_thousand_items_that_the_bounds_refuse_leave_the_pool_as_it_was() -> None:
    kinds = (
        "9^{{9^{{9^{n}}}}}",
        "({n}+10^8)!",
        "{deep}{n}",
        "{digits}{n}",
        "\\frac{{{n}}}{{{deep}}}",
    )
    texts = {"deep": "{" * 1_000, "digits": "7" * 5_000}
    items = [
        Item(Problem(f"p/{n}", "", "3"), f"\\boxed{{{kinds[n % 5].format(n=n, **texts)}}}")
        for n in range(10_000)
    ]
    refused = list(mark_many(items[:1_000]))
    before = size()
    refused += mark_many(items[1_000:])
    assert len(refused) == 10_000
    assert {verdict.score for verdict in refused} == {0.0}
    assert Reason.TOO_LARGE in {verdict.reason for verdict in refused}
    check_growth(before)


def test_ctrl_c_in_the_middle_leaves_no_worker(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(HANGS)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"completion": "1", "gold": "1"}\n' * 8)
    stepmark = str(Path(sys.executable).with_name("stepmark"))
    command = [stepmark, "verify", "--file", str(rows), "--out", str(tmp_path / "out")]
    started = subprocess.Popen(
        [*command, "--verifier", "hang.py:hangs?timeout_s=30"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(4)
    assert started.poll() is None
    os.kill(started.pid, signal.SIGINT)
    assert started.wait(timeout=20) == 130
    deadline = time.monotonic() + 10
    while (left := session_of(started.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, left
    assert not (tmp_path / "out").exists()
