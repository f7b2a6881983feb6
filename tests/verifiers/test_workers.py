"""Workers: deadlines that hold, deaths that are survived, threads, their number."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepmark.errors import ConfigError
from stepmark.types import Reason, Status
from stepmark.verifiers import MathVerifier, close_workers, set_workers, verify, worker_count
from stepmark.verifiers import workers as pool
from stepmark.verifiers.pool import Piece, Pool
from stepmark.verifiers.processes import Spawner, Starter, starter

SLOW = "{" + "+".join(rf"\sin({k}x)^{k}\cos({k}y)^{k}" for k in range(2, 14)) + "}^2"
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="there are no forks to look at")


@pytest.fixture
def four_workers() -> Iterator[None]:
    set_workers(4)
    yield
    set_workers(None)


def test_a_task_past_its_deadline_is_stopped_and_the_next_one_runs() -> None:
    pool.run_all("compare", len, [("ab",)], timeout_s=30)  # start-up is no part of what is measured
    start = time.monotonic()
    outcomes = pool.run_all("compare", time.sleep, [(60,), (0,)], timeout_s=0.5)
    assert [outcome.kind for outcome in outcomes] == ["too_slow", "done"]
    assert time.monotonic() - start < 6


def test_a_call_that_hears_no_signal_is_killed_at_its_deadline() -> None:
    pool.run_all("compare", len, [("ab",)], timeout_s=30)
    start = time.monotonic()
    outcome = pool.run_all("compare", sum, [(range(10**13),)], timeout_s=0.2)[0]
    assert outcome == ("too_slow", None, 2)
    assert time.monotonic() - start < 2 * (0.2 + 0.5)


def test_what_a_fresh_worker_loads_is_not_under_the_deadline() -> None:
    load = (time.sleep, (0.6,))
    for _ in range(2):  # a killed worker loads again
        outcomes = pool.run_all(
            "compare", time.sleep, [(0,), (60,), (0,)], timeout_s=0.3, first=load
        )
        assert [outcome.kind for outcome in outcomes] == ["done", "too_slow", "done"]
    broken = (divmod, (1, 0))
    assert pool.run_all("compare", len, [("ab",)], timeout_s=9, first=broken)[0].value == 2


def test_a_worker_that_dies_is_lost_twice_and_replaced() -> None:
    outcomes = pool.run_all("compare", os._exit, [(3,)], timeout_s=30)
    assert outcomes[0].kind == "lost"
    assert "exit code 3" in repr(outcomes[0].value)
    assert pool.run_all("compare", divmod, [(7, 2)], timeout_s=30)[0].value == (3, 1)


def test_what_a_task_raises_comes_back_as_a_value() -> None:
    outcome = pool.run_all("compare", divmod, [(1, 0)], timeout_s=30)[0]
    assert outcome.kind == "raised"
    assert isinstance(outcome.value, ZeroDivisionError)


def test_what_cannot_travel_costs_no_other_call() -> None:
    outcomes = pool.run_all(
        "function", eval, [("1",), ("lambda: 1",), ("exit(2)",), ("2",)], timeout_s=30
    )
    assert [outcome.kind for outcome in outcomes] == ["done", "raised", "raised", "done"]
    assert "cannot leave the worker" in repr(outcomes[1].value)
    sent = pool.run_all("function", id, [(1,), (threading.Lock(),), (2,)], timeout_s=30)
    assert [outcome.kind for outcome in sent] == ["done", "raised", "done"]


def test_what_cannot_be_loaded_here_costs_no_other_call() -> None:
    trap = "type('Trap', (), {'__reduce__': lambda self: (divmod, (1, 0))})()"
    calls = [("1",), (trap,), ("__import__('time').sleep(0.1)",), ("2",)]
    outcomes = list(pool.run_each("function", eval, calls, timeout_s=30, at_once=99))
    assert [outcome.kind for outcome in outcomes] == ["done", "raised", "done", "done"]
    assert isinstance(outcomes[1].value, ZeroDivisionError)
    assert outcomes[3].value == 2


@needs_fork
def test_memory_is_bounded_and_the_worker_is_replaced() -> None:
    big, small = pool.run_all("compare", bytearray, [(5 * 2**30,), (5,)], timeout_s=30)
    assert isinstance(big.value, MemoryError)
    assert small.value == bytearray(5)


def test_calls_that_go_together_have_deadlines_of_their_own() -> None:
    calls = [(0.3,)] * 4 + [(60,)] + [(0,)] * 4
    start = time.monotonic()
    outcomes = list(pool.run_each("compare", time.sleep, calls, timeout_s=0.5, at_once=99))
    assert [outcome.kind for outcome in outcomes] == ["done"] * 4 + ["too_slow"] + ["done"] * 4
    assert outcomes[4].tries == 2
    assert time.monotonic() - start < 1.2 + 2 * (0.5 + 0.5) + 1


def test_calls_that_go_together_survive_the_death_of_their_worker() -> None:
    calls = [("7",), ("8",), ("__import__('os')._exit(1)",), ("9",)]
    outcomes = list(pool.run_each("function", eval, calls, timeout_s=30, at_once=99))
    assert [outcome.kind for outcome in outcomes] == ["done", "done", "lost", "done"]
    assert [outcome.value for outcome in outcomes if outcome.kind == "done"] == [7, 8, 9]


def test_too_slow_twice_is_the_completions_fault() -> None:
    # A worker that has compared these two before takes about 20 ms.
    verdict = MathVerifier(timeout_s=0.002)
    marked = verify(
        rf"\boxed{{{SLOW}}}", gold=f"{SLOW}+\\sin(2x)-2\\sin(x)\\cos(x)", verifier=verdict
    )
    assert (marked.status, marked.score, marked.reason) == (Status.OK, 0, Reason.TOO_SLOW)


def test_threads_share_the_workers() -> None:
    found: list[bool | None] = []

    def mark(k: int) -> None:
        found.append(verify(rf"\boxed{{{k}\sin(2x)}}", gold=rf"{2 * k}\sin(x)\cos(x)").correct)

    threads = [threading.Thread(target=mark, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_asyncio_goes_on_while_a_thread_waits_for_a_worker() -> None:
    async def both() -> tuple[str, int]:
        waiting = asyncio.create_task(
            asyncio.to_thread(pool.run_all, "compare", time.sleep, [(0.5,)], timeout_s=30)
        )
        beats = 0
        while not waiting.done():
            await asyncio.sleep(0.02)
            beats += 1
        return (await waiting)[0].kind, beats

    kind, beats = asyncio.run(both())
    assert kind == "done"
    assert beats > 5


def test_closing_is_idempotent_and_the_next_task_starts_anew() -> None:
    close_workers()
    close_workers()
    assert verify(r"\boxed{\sin^2 x+\cos^2 x}", gold="1").correct


def test_closing_ends_a_call_that_is_running() -> None:
    outcomes: list[pool.Outcome] = []
    waiting = threading.Thread(
        target=lambda: outcomes.extend(
            pool.run_all("compare", time.sleep, [(60,)] * 9, timeout_s=90)
        )
    )
    waiting.start()
    time.sleep(0.3)
    close_workers()
    waiting.join(5)
    assert [(outcome.kind, outcome.tries) for outcome in outcomes] == [("lost", 2)] * 9
    assert "stopped" in repr(outcomes[0].value)


@needs_proc
@pytest.mark.parametrize("origin", [starter, pytest.param(Spawner, marks=pytest.mark.slow)])
def test_workers_from_anywhere_keep_deadlines_and_end(origin: Callable[[str], Starter]) -> None:
    drivers = Pool("compare", 2, origin)
    try:
        calls = [(0,), (60,), (0,)]
        start = drivers.put(Piece(time.sleep, [(0,)], 30, 99), is_urgent=True)
        assert start.result()[0].kind == "done"
        waiting = drivers.put(Piece(time.sleep, calls, 0.3, 99), is_urgent=True)
        assert [outcome.kind for outcome in waiting.result()] == ["done", "too_slow", "done"]
        lost = drivers.put(Piece(os._exit, [(3,)], 30, 99), is_urgent=True).result()[0]
        assert (lost.kind, "exit code 3" in str(lost.value)) == ("lost", True)
        pids = [drivers.put(Piece(os.getpid, [()], 30, 1), is_urgent=True) for _ in range(3)]
        seen = [future.result()[0].value for future in pids]
        assert os.getpid() not in seen
        assert len(set(seen)) > 1, "workers are renewed"
    finally:
        drivers.close()
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]


@needs_fork
def test_a_worker_is_killed_with_all_that_it_started() -> None:
    mark = f"86399.{os.getpid()}"  # other runs of this test are not looked at
    code = f"__import__('subprocess').run(['sleep', '{mark}'])"
    assert pool.run_all("function", eval, [(code,)], timeout_s=0.3)[0].kind == "too_slow"
    end = time.monotonic() + 0.5  # what a deadline may be overrun by
    while (left := _commands_with(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left


def _commands_with(mark: str) -> list[bytes]:
    found: list[bytes] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.append(place.read_bytes())
    return [command for command in found if mark.encode() in command and b"sleep" in command[:5]]


@needs_proc
def test_a_nursery_that_was_killed_is_replaced() -> None:
    pool.run_all("compare", len, [("ab",)], timeout_s=30)
    parent = pool.run_all("compare", os.getppid, [()], timeout_s=30)[0].value
    if parent != os.getpid():
        os.kill(parent, signal.SIGKILL)
    assert pool.run_all("compare", len, [("ab",)], timeout_s=30)[0].value == 2
    outcomes = pool.run_all("compare", os._exit, [(1,)], timeout_s=30)
    assert outcomes[0].kind == "lost"
    assert pool.run_all("compare", len, [("ab",)], timeout_s=30)[0].value == 2


def test_the_number_of_workers_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPMARK_WORKERS", raising=False)
    set_workers(None)  # whatever another test of this process chose
    assert 1 <= worker_count() <= 4
    monkeypatch.setenv("STEPMARK_WORKERS", "3")
    assert worker_count() == 3
    set_workers(2)
    assert worker_count() == 2
    set_workers(None)
    assert worker_count() == 3
    for bad in ("0", "-1", "two", "1.5", "1025", "9" * 5000, "²"):
        monkeypatch.setenv("STEPMARK_WORKERS", bad)
        with pytest.raises(ConfigError, match=r"STEPMARK_WORKERS is .*allowed: 1 to 1024"):
            worker_count()
    for wrong in (0, -1, True, 2.0, "2", 1025):
        with pytest.raises(ConfigError, match=r"number of workers is .*set_workers\(2\)"):
            set_workers(wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("four_workers")
def test_as_many_calls_run_at_once_as_there_are_workers() -> None:
    pool.run_all("compare", time.sleep, [(0.01,)] * 4, timeout_s=30)
    start = time.monotonic()
    pool.run_all("compare", time.sleep, [(0.5,)] * 4, timeout_s=30)
    assert time.monotonic() - start < 1.5
    set_workers(1)
    pids = pool.run_all("compare", os.getpid, [()] * 8, timeout_s=30)
    time.sleep(0.1)
    pids = pool.run_all("compare", os.getpid, [()] * 8, timeout_s=30)
    assert len({outcome.value for outcome in pids}) == 1
    start = time.monotonic()
    waiting = threading.Thread(
        target=pool.run_all, args=("compare", time.sleep, [(0.5,)] * 6), kwargs={"timeout_s": 30}
    )
    waiting.start()
    time.sleep(0.1)
    set_workers(6)  # also for what waits already
    waiting.join()
    assert time.monotonic() - start < 2.5
