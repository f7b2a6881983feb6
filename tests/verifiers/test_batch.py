"""Batches: the verdicts of calling the verifier, in order, whatever it is and whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import ConfigError, UnknownNameError
from stepmark.types import Item, Problem, Reason, Status, Verdict
from stepmark.verifiers import (
    Divided,
    MathVerifier,
    from_function,
    load_verifier,
    mark_async,
    mark_many,
    set_workers,
    submit,
)

SOURCE = textwrap.dedent(
    """
    import os, time
    from stepmark.types import Verdict

    def units(completion, gold, unit="cm"):
        return completion.endswith(f"{gold} {unit}")

    def raising(completion, gold):
        return 1 / int(gold)

    def hanging(completion, gold):
        while completion == "hang":
            pass
        return completion == gold

    def dying(completion):
        if completion == "die":
            os._exit(9)
        return 1

    class Careful:
        '''Divided: odd lengths are left for later.'''
        key = "careful@1"
        columns = frozenset()
        def __call__(self, items):
            return self.settle(self.begin(items))
        def begin(self, items):
            return [self.look(item.completion) for item in items]
        def look(self, text):
            if text == "die":
                os._exit(9)
            if text == "raise":
                raise KeyError("odd")
            if text.startswith("wait"):
                time.sleep(0.3)
            return text if len(text) % 2 else Verdict.marked(1, "even", pid=os.getpid())
        def settle(self, found):
            return [Verdict.marked(0, "odd", pid=os.getpid()) if isinstance(f, str) else f
                    for f in found]
    """
)


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    path = tmp_path / "checks.py"
    path.write_text(SOURCE)
    return path


def item(completion: str, gold: str | None = "3", **meta: Any) -> Item:
    return Item(
        Problem(f"p/{completion}", "How long?", gold, "work", "t", meta), completion, "P", 7
    )


MIXED = [
    item(r"It is \boxed{\frac{6}{2}}."),
    item("no idea"),
    item(r"\boxed{\sin(2x)}", r"2\sin(x)\cos(x)"),
    item(r"\boxed{\sin(3x)}", r"3\sin(x)-4\sin^3(x)", level=3),
    item(r"\boxed{\sin(2x)}", r"2\sin(x)\cos(x)"),
    item(r"\boxed{9^{9^{9^9}}}"),
    item("\ud800 \x00 {{{"),
    item("#### 3", None),
    item("#### 3", "\\frac{1}{0}"),
    item("x" * 100_000),
]


class Own:
    """A verifier of somebody's own: batches in this process only."""

    key = "own@1"
    columns = frozenset[str]()

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        assert self.lock.acquire(blocking=False), "called twice at the same time"
        time.sleep(0.01)
        self.lock.release()
        if any(item.completion == "raise" for item in items):
            raise KeyError("odd")
        if any(item.completion == "short" for item in items):
            return []
        return [Verdict.marked(item.completion == item.problem.gold, "own") for item in items]


class Here(Own):
    """Divided, and defined where no worker finds it, as in a notebook."""

    def __init__(self) -> None:
        pass

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return self.settle(self.begin(items))

    def begin(self, items: Sequence[Item]) -> list[int]:
        return [os.getpid() for _ in items]

    def settle(self, found: Sequence[int]) -> list[Verdict]:
        return [Verdict.marked(pid == os.getpid(), "own") for pid in found]


@pytest.mark.parametrize(
    "reference",
    ["math", "math?units=require", "exact", {"name": "math", "strict": True}, "all(math, exact)"],
)
def test_a_batch_gives_the_verdicts_of_calling_the_verifier(reference: Any) -> None:
    items = MIXED * 9
    expected = load_verifier(reference)(items)
    found = submit(items, verifier=reference).result()
    assert found == expected
    assert [type(verdict.reason) for verdict in found] == [type(v.reason) for v in expected]
    assert json.dumps([v.to_row() for v in found]) == json.dumps([v.to_row() for v in expected])
    assert list(mark_many(items, verifier=reference, chunk=7)) == expected
    assert asyncio.run(mark_async(items, verifier=reference)) == expected


@pytest.mark.parametrize("name", ["units", "units?unit=m", "Careful"])
def test_verifiers_in_files_give_their_verdicts_in_batches(checks: Path, name: str) -> None:
    items = [item(f"{n} {'cm' if n % 3 else 'm'}") for n in range(60)]
    reference = f"{checks}:{name}"
    expected = [_without_pid(verdict) for verdict in load_verifier(reference)(items)]
    found = [_without_pid(verdict) for verdict in mark_many(items, verifier=reference, chunk=9)]
    assert found == expected


def _without_pid(verdict: Verdict) -> tuple[Any, ...]:
    return (verdict.score, verdict.status, verdict.reason, verdict.gold)


def test_functions_of_this_process_and_objects_mark_here_one_batch_after_another() -> None:
    items = [item("3"), item("4")]
    for mark in (Own(), from_function(lambda completion, gold: completion == gold, name="mine")):
        waiting = [submit(items, verifier=mark) for _ in range(8)]
        assert [[v.correct for v in f.result()] for f in waiting] == [[True, False]] * 8


def test_a_divided_verifier_that_no_worker_can_load_marks_here_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(Here(), Divided)
    waiting = [submit([item("3"), item("4")], verifier=Here()) for _ in range(2)]
    assert [[v.correct for v in future.result()] for future in waiting] == [[True, True]] * 2
    assert "'own@1' cannot be loaded by a worker" in caplog.text
    assert "in a file or module" in caplog.text


def test_all_workers_share_a_batch(checks: Path) -> None:
    set_workers(2)
    try:
        items = [item("xx" * n) for n in range(1, 1500)]
        found = submit(items, verifier=f"{checks}:Careful").result()
        shares = Counter(verdict.detail["pid"] for verdict in found)
        assert len(shares) == 2
        assert min(shares.values()) > 150
    finally:
        set_workers(None)


def test_an_item_that_kills_its_worker_or_hangs_costs_no_other(checks: Path) -> None:
    texts = ["3", "4"] * 20
    hung = submit([*map(item, texts), item("hang"), *map(item, texts)],
                  verifier=f"{checks}:hanging?timeout_s=0.3").result()  # fmt: skip
    assert [v.correct for v in hung] == [True, False] * 20 + [False] + [True, False] * 20
    assert hung[40].reason is Reason.TOO_SLOW
    for name in ("dying", "Careful"):
        died = submit([item("12"), item("die"), item("34")], verifier=f"{checks}:{name}").result()
        assert [v.score for v in died] == [1, None, 1]
        assert (died[1].status, died[1].reason) == (Status.ERROR, Reason.WORKER_LOST)


def test_what_a_verifier_raises_is_a_verdict_of_its_item(checks: Path) -> None:
    rows = submit([item("1", "2"), item("1", "0"), item("1", "1")], verifier=f"{checks}:raising")
    assert [v.score for v in rows.result()] == [0.5, None, 1]
    assert "ZeroDivisionError" in rows.result()[1].detail["traceback"]
    for mark in (Own(), f"{checks}:Careful"):
        found = submit([item("33", "33"), item("raise"), item("44", "44")], verifier=mark).result()
        assert [v.score for v in found] == [1, None, 1]
        assert (found[1].reason, found[1].gold) == (Reason.VERIFIER_RAISED, "3")
        assert "odd" in found[1].detail["traceback"]
    short = submit([item("3"), item("short")], verifier=Own()).result()
    assert [v.score for v in short] == [1, None]
    assert "one Verdict per item" in short[1].detail["error"]


def test_slow_items_that_are_handed_over_together_are_each_marked_once_and_in_order(
    checks: Path,
) -> None:
    set_workers(1)
    try:
        texts = ["wait" + "x" * n for n in range(8)]
        found = submit(map(item, texts), verifier=f"{checks}:Careful").result()
        assert [v.reason for v in found] == ["even", "odd"] * 4
    finally:
        set_workers(None)


def test_all_workers_share_what_is_slow(checks: Path) -> None:
    set_workers(2)
    try:
        items = [item("wait" + "xx" * n) for n in range(16)]
        found = submit(items, verifier=f"{checks}:Careful").result()
        assert [v.reason for v in found] == ["even"] * 16
        shares = Counter(verdict.detail["pid"] for verdict in found)
        assert len(shares) == 2
        assert min(shares.values()) > 4
    finally:
        set_workers(None)


def test_an_item_that_cannot_travel_is_marked_as_if_the_verifier_were_called() -> None:
    odd = item("#### 3", lock=threading.Lock())
    items = [item("#### 3"), odd, item("#### 4")]
    assert list(mark_many(items)) == MathVerifier()(items)
    assert [verdict.correct for verdict in mark_many(items)] == [True, True, False]


def test_the_quick_part_runs_in_workers_and_the_rest_here(checks: Path) -> None:
    found = submit([item("a"), item("bb")], verifier=f"{checks}:Careful").result()
    assert [v.reason for v in found] == ["odd", "even"]
    assert found[0].detail["pid"] == os.getpid() != found[1].detail["pid"]


def test_submit_returns_at_once_and_the_caller_goes_on(checks: Path) -> None:
    start = time.monotonic()
    waiting = submit([item("hang")] * 2, verifier=f"{checks}:hanging?timeout_s=0.4")
    assert time.monotonic() - start < 0.3
    steps = 0
    while not waiting.done():
        steps += 1
        time.sleep(0.01)
    assert steps > 20, "the caller worked while the batch was marked"
    assert [v.reason for v in waiting.result()] == [Reason.TOO_SLOW] * 2


def test_the_caller_may_change_its_list_after_submitting() -> None:
    items = [item("#### 3"), item("#### 4")]
    waiting = submit(items)
    items.clear()
    assert [v.correct for v in waiting.result()] == [True, False]
    assert submit([]).result() == []


def test_many_batches_at_once_keep_their_own_verdicts() -> None:
    batches = [[item(f"#### {n}", str(n + n % 2)) for n in range(k, k + 40)] for k in range(12)]
    waiting = [submit(batch) for batch in batches]
    for k, future in enumerate(waiting):
        assert [v.correct for v in future.result()] == [n % 2 == 0 for n in range(k, k + 40)]


def test_a_long_stream_is_read_as_it_is_needed() -> None:
    read = 0

    def rows() -> Iterator[Item]:
        nonlocal read
        for n in range(10**9):
            read += 1
            yield item(f"#### {n}", str(n))

    verdicts = mark_many(rows(), chunk=10)
    assert read == 0
    assert all(next(verdicts).correct for _ in range(200))
    assert read < 200 + 10 * 12
    verdicts.close()  # type: ignore[attr-defined]
    assert read < 200 + 10 * 12


def test_what_a_stream_raises_reaches_the_caller() -> None:
    def rows() -> Iterator[Item]:
        yield item("#### 3")
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(mark_many(rows()))


def test_a_batch_that_waits_in_asyncio_lets_others_run(checks: Path) -> None:
    async def both() -> tuple[list[Verdict], list[Verdict]]:
        slow = asyncio.create_task(
            mark_async([item("hang")], verifier=f"{checks}:hanging?timeout_s=0.3")
        )
        quick = await mark_async([item("#### 3")])
        assert not slow.done()
        return await slow, quick

    slow, quick = asyncio.run(both())
    assert (slow[0].reason, quick[0].correct) == (Reason.TOO_SLOW, True)


def test_bad_requests_are_refused_when_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError):
        submit([item("3")], verifier="maths")
    with pytest.raises(UnknownNameError):
        mark_many([item("3")], verifier="maths")
    for chunk in (0, -1, True, 2.0):
        with pytest.raises(ConfigError, match="chunk is"):
            mark_many([item("3")], chunk=chunk)  # type: ignore[arg-type]
    monkeypatch.setenv("STEPMARK_WORKERS", "many")
    with pytest.raises(ConfigError, match="STEPMARK_WORKERS is 'many'"):
        submit([item("3")])


def test_a_cancelled_batch_is_not_begun() -> None:
    waiting = submit([item("#### 3")])
    try:
        assert waiting.cancel() is False or waiting.cancelled()
        assert waiting.result()[0].correct
    except CancelledError:
        assert waiting.cancelled()


def test_verifiers_pickle(checks: Path) -> None:
    math = MathVerifier(units="require")
    math([item("#### 3")])
    again = pickle.loads(pickle.dumps(math))
    assert (again.key, again(MIXED)) == (math.key, math(MIXED))
    assert len(pickle.dumps(math)) < 500, "golds stay behind"
    function = load_verifier(f"{checks}:units?unit=m")
    copy = pickle.loads(pickle.dumps(function))
    assert (copy.key, copy([item("3 m")])) == (function.key, function([item("3 m")]))
    assert isinstance(math, Divided)
    assert not isinstance(function, Divided)
