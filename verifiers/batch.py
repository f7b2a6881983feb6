"""Batches of completions marked in worker processes, while the caller goes on.

`submit` returns at once, so that a trainer samples while the last completions are marked;
`mark_many` goes through a file of any length in bounded memory; `mark_async` is for asyncio. All
take any verifier and give the very verdicts, in order, that calling it gives. How many processes
work is `stepmark.verifiers.set_workers`.

Which work runs where depends on the verifier. One that is `Divided`, as ``math`` is, is sent to the
workers and marks there in chunks; the caller spends a few microseconds on each item and is free
meanwhile. Functions from files and modules run in workers too, call by call under their deadline.
Any other object, and functions of a notebook, mark in a thread of this process, one batch after
another.
"""

from __future__ import annotations

import itertools
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from stepmark.errors import ConfigError
from stepmark.protocols import OutcomeVerifier
from stepmark.types import Item, Reason, Verdict

from .functions import FunctionVerifier
from .loading import load_verifier
from .parcels import CHUNK, begun, parcel_of
from .workers import worker_count

__all__ = ["Divided", "mark_async", "mark_many", "submit"]

_in_this_process = threading.Lock()
"""Verifiers need not be safe for threads: those that run here take turns."""


@runtime_checkable
class Divided(Protocol):
    """A verifier that says which part of marking is quick: that part runs in workers, in chunks.

    It can be pickled; ``settle(begin(items))`` is what calling it gives; ``begin`` marks each item
    by itself. A verifier of your own becomes faster in batches by having these two.
    """

    def begin(self, items: Sequence[Item]) -> list[Any]:
        """One entry per item: its verdict, or something picklable that `settle` understands."""
        ...

    def settle(self, found: Sequence[Any]) -> list[Verdict]:
        """One verdict per entry; runs in the caller's process, and may use workers."""
        ...


def submit(
    items: Iterable[Item],
    *,
    verifier: str | Mapping[str, Any] | Callable[..., Any] | OutcomeVerifier = "math",
) -> Future[list[Verdict]]:
    r"""A future of one verdict per item, in order; the call itself returns at once.

    Errors in the verifier are verdicts of status ``error``; the future raises nothing. Every
    submitted batch stays in memory until it is marked: for long files, use `mark_many`.

    Args:
        items: what to mark; read before the call returns.
        verifier: a reference as `stepmark.verifiers.load_verifier` takes it, or an object.

    Raises:
        UnknownNameError: nothing is known under the verifier's name.
        ConfigError: the verifier cannot be loaded, or ``STEPMARK_WORKERS`` is no number.

    >>> from stepmark.types import Problem
    >>> waiting = submit([Item(Problem("1", "", "0.5"), r"It is \boxed{\frac12}.")])
    >>> [verdict.correct for verdict in waiting.result()]
    [True]
    """
    return _submitted(_loaded(verifier), tuple(items))


async def mark_async(
    items: Iterable[Item],
    *,
    verifier: str | Mapping[str, Any] | Callable[..., Any] | OutcomeVerifier = "math",
) -> list[Verdict]:
    r"""One verdict per item, in order, for asyncio: the loop goes on meanwhile.

    Args:
        items: what to mark.
        verifier: a reference as `stepmark.verifiers.load_verifier` takes it, or an object.

    Raises:
        UnknownNameError: nothing is known under the verifier's name.
        ConfigError: the verifier cannot be loaded, or ``STEPMARK_WORKERS`` is no number.

    >>> import asyncio
    >>> from stepmark.types import Problem
    >>> item = Item(Problem("1", "", "0.5"), r"It is \boxed{\frac12}.")
    >>> asyncio.run(mark_async([item]))[0].correct
    True
    """
    import asyncio

    return await asyncio.wrap_future(submit(items, verifier=verifier))


def mark_many(
    items: Iterable[Item],
    *,
    verifier: str | Mapping[str, Any] | Callable[..., Any] | OutcomeVerifier = "math",
    chunk: int = CHUNK,
) -> Iterator[Verdict]:
    """The verdicts of any number of items, in order, as they become ready.

    Items are read as they are needed: a few chunks per worker are in memory at any time. Stop
    reading the verdicts, and no further item is read.

    Args:
        items: what to mark; a generator over a file, for example.
        verifier: a reference as `stepmark.verifiers.load_verifier` takes it, or an object.
        chunk: items that are handed to a worker together, from 1.

    Raises:
        UnknownNameError: nothing is known under the verifier's name.
        ConfigError: the verifier cannot be loaded, the chunk is not a whole number above 0, or
            ``STEPMARK_WORKERS`` is no number.

    >>> from stepmark.types import Problem
    >>> rows = (Item(Problem(str(n), "", "7"), f"#### {n}") for n in range(6, 9))
    >>> [verdict.correct for verdict in mark_many(rows)]
    [False, True, False]
    """
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise ConfigError(
            f"chunk is {chunk!r}; it must be a whole number of items above 0. "
            f"Leave it out for {CHUNK}."
        )
    return _marked(_loaded(verifier), iter(items), chunk, ahead=2 * worker_count() + 1)


def _marked(
    judge: OutcomeVerifier, items: Iterator[Item], chunk: int, ahead: int
) -> Iterator[Verdict]:
    waiting: deque[Future[list[Verdict]]] = deque()
    try:
        while True:
            while len(waiting) < ahead and (batch := tuple(itertools.islice(items, chunk))):
                waiting.append(_submitted(judge, batch))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _loaded(verifier: Any) -> OutcomeVerifier:
    worker_count()  # a bad STEPMARK_WORKERS is told to the caller, not to a thread
    if verifier == "math":  # not looked up among installed packages each time: that takes 3 ms
        from .math import MathVerifier

        return MathVerifier()
    return load_verifier(verifier)


def _submitted(judge: OutcomeVerifier, items: tuple[Item, ...]) -> Future[list[Verdict]]:
    future: Future[list[Verdict]] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(_mark(judge, items))
        except BaseException as error:  # a defect of ours, or an interrupt: never left waiting
            future.set_exception(error)

    if items:
        threading.Thread(target=run, name="stepmark-marking", daemon=True).start()
    else:
        future.set_result([])
    return future


def _mark(judge: OutcomeVerifier, items: tuple[Item, ...]) -> list[Verdict]:
    if isinstance(judge, Divided) and (parcel := parcel_of(judge)) is not None:
        found = begun(parcel, items)
        return _kept(judge.settle, found, items)
    if isinstance(judge, FunctionVerifier) and judge.origin is not None:
        return judge(items)
    with _in_this_process:
        return _kept(judge, items, items)


def _kept(
    mark: Callable[[Sequence[Any]], list[Verdict]], entries: Sequence[Any], items: Sequence[Item]
) -> list[Verdict]:
    """What a verifier says, or error verdicts for the items with which it does not keep its word.

    One that raises is asked again item by item, so that a bad one does not cost the others.
    """
    try:
        verdicts = mark(entries)
        if len(verdicts) != len(items) or not all(isinstance(v, Verdict) for v in verdicts):
            raise TypeError(f"{verdicts!r:.200} came back for {len(items)} items; it must be "
                            "a list of one Verdict per item")  # fmt: skip
        return verdicts
    except Exception as error:
        if len(items) == 1:
            gold, trace = items[0].problem.gold, traceback.format_exc()
            return [
                Verdict.failed(
                    Reason.VERIFIER_RAISED, gold=gold, error=repr(error), traceback=trace
                )
            ]
        return [
            verdict
            for entry, item in zip(entries, items, strict=True)
            for verdict in _kept(mark, [entry], [item])
        ]


def _forget() -> None:
    """In a fork of this process: a thread that is not here may hold the lock."""
    global _in_this_process  # noqa: PLW0603  (a lock of the process, as its threads are)
    _in_this_process = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
