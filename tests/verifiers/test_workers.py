"""Workers: deadlines that hold, deaths that are survived, threads, scripts without a guard."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from stepmark.types import Reason, Status
from stepmark.verifiers import MathVerifier, close_workers, verify
from stepmark.verifiers import workers as pool

SLOW = "{" + "+".join(rf"\sin({k}x)^{k}\cos({k}y)^{k}" for k in range(2, 14)) + "}^2"
ROOT = Path(__file__).resolve().parents[2]


def test_a_task_past_its_deadline_is_stopped_and_the_next_one_runs() -> None:
    pool.run_all("compare", len, [("ab",)], timeout_s=30)  # start-up is no part of what is measured
    start = time.monotonic()
    outcomes = pool.run_all("compare", time.sleep, [(60,), (0,)], timeout_s=0.5)
    assert [outcome.kind for outcome in outcomes] == ["too_slow", "done"]
    assert time.monotonic() - start < 6


def test_a_worker_that_dies_is_lost_twice_and_replaced() -> None:
    outcomes = pool.run_all("compare", os._exit, [(3,)], timeout_s=30)
    assert outcomes[0].kind == "lost"
    assert pool.run_all("compare", divmod, [(7, 2)], timeout_s=30)[0].value == (3, 1)


def test_what_a_task_raises_comes_back_as_a_value() -> None:
    outcome = pool.run_all("compare", divmod, [(1, 0)], timeout_s=30)[0]
    assert outcome.kind == "raised"
    assert isinstance(outcome.value, ZeroDivisionError)


def test_too_slow_twice_is_the_completions_fault() -> None:
    verdict = MathVerifier(timeout_s=0.02)
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


def test_closing_is_idempotent_and_the_next_task_starts_anew() -> None:
    close_workers()
    close_workers()
    assert verify(r"\boxed{\sin^2 x+\cos^2 x}", gold="1").correct


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\nfrom stepmark.verifiers import verify\n"
        "print(verify(r'\\boxed{\\sin^2 x+\\cos^2 x}', gold='1').correct)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == ["started", "True"]
    assert done.stderr == ""
