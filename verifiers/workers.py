"""Warm worker processes with deadlines: what may run long runs here and can be killed.

Works from any thread, from asyncio (`asyncio.to_thread`, or `stepmark.verifiers.mark_async`), from
notebooks, scripts without a guard, daemonic processes and actors. The deadline of a task counts
from the moment a worker takes it; then the worker is killed, with all that it started, and replaced
in milliseconds. A worker has no workers of its own: what it is asked to run in one runs where it
is, under the deadline that it is under already.

pebble was measured for this: it cannot run in a daemonic process, waits up to three seconds for a
worker inside a long C call, needs a fresh interpreter for each worker that it kills, and leaves
busy workers behind when its own process is killed.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepmark.errors import ConfigError

from .serving import is_worker

if TYPE_CHECKING:
    from .pool import Pool

__all__ = [
    "Outcome",
    "close_workers",
    "run_all",
    "run_each",
    "run_here",
    "set_workers",
    "worker_count",
]

Kind = Literal["compare", "exact", "function"]
Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A task and the arguments of one call."""

VARIABLE = "STEPMARK_WORKERS"
MOST_BY_DEFAULT = 4
MOST = 1024
RENEW_AFTER = 2_000
"""Calls after which a worker is replaced: sympy's caches only grow."""

_lock = threading.RLock()
_pools: dict[str, Pool] = {}
_chosen: int | None = None


class Outcome(NamedTuple):
    """What became of a task."""

    kind: Literal["done", "raised", "too_slow", "lost"]
    value: Any = None
    """The return value, or the exception that the task raised."""
    tries: int = 1
    """How often it was run; a break of a deadline in the midst of others counts."""


def set_workers(workers: int | None) -> None:
    """Bound the number of processes that mark at the same time, of each kind.

    There are two kinds: those that mark and compare, under a limit on memory, and those that run
    custom functions. Takes effect at once; workers beyond the number end with their present task.

    Args:
        workers: how many; None is the default: the environment variable ``STEPMARK_WORKERS`` where
            it is set, else the cores that this process may use, at most 4.

    Raises:
        ConfigError: not a whole number from 1 to 1024.
    """
    global _chosen  # noqa: PLW0603  (a setting of the process, as its workers are)
    if workers is not None:
        workers = _checked(workers, "The number of workers", "Call set_workers(2), for example.")
    with _lock:
        _chosen = workers
        size = worker_count()
        for pool in _pools.values():
            pool.resize(size)


def worker_count() -> int:
    """The number of workers that may run at the same time: see `set_workers`.

    Raises:
        ConfigError: the environment variable ``STEPMARK_WORKERS`` holds no whole number above 0.
    """
    if _chosen is not None:
        return _chosen
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else text
        return _checked(number, f"The environment variable {VARIABLE}", f"Set {VARIABLE}=2.")
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return min(MOST_BY_DEFAULT, cores)


def _checked(number: Any, what: str, remedy: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise ConfigError(f"{what} is {number!r}; allowed: 1 to {MOST}. {remedy}")
    return number


def run_all(
    kind: Kind,
    task: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    timeout_s: float,
    first: Call | None = None,
) -> list[Outcome]:
    """The outcomes of a task on many arguments, in order; nothing is raised.

    A task past its deadline, or one whose worker died, is tried once more, on an idle worker.

    Args:
        kind: ``compare``: workers under a limit on memory, with sympy loaded; ``exact``: the same
            ones, after all comparisons that wait; ``function``: plain ones.
        task: a function that workers can import by its module and name.
        arguments: one tuple of picklable values per call.
        timeout_s: deadline of each call, in seconds from the moment a worker takes it.
        first: a call, hashable, that each fresh worker makes before its deadlines begin: loading a
            file that imports much is no fault of a completion.

    Raises:
        ConfigError: the environment variable ``STEPMARK_WORKERS`` holds no whole number above 0.
    """
    if is_worker():
        return [run_here(task, args) for args in arguments]
    share = len(arguments) // (8 * worker_count())
    at_once = min(max(share, 1), 64) if kind == "function" else 1
    pieces = _pieces(kind, task, arguments, timeout_s, at_once, first)
    outcomes = [outcome for _, piece in pieces for outcome in piece]
    again = [index for index, outcome in enumerate(outcomes) if _is_open(outcome)]
    pieces = _pieces(kind, task, [arguments[index] for index in again], timeout_s, 1, first)
    for index, (_, piece) in zip(again, pieces, strict=True):
        outcomes[index] = piece[0]._replace(tries=2)
    return outcomes


def run_each(
    kind: Kind,
    task: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    *,
    timeout_s: float,
    at_once: int,
    first: Call | None = None,
    is_tried_again: bool = True,
) -> Iterator[Outcome]:
    """As `run_all`, for many short calls: the outcomes in order, each as soon as it is there.

    Args:
        kind: see `run_all`.
        task: see `run_all`.
        arguments: see `run_all`; read to the end when the first outcome is asked for.
        timeout_s: see `run_all`.
        at_once: most calls that a worker is handed together; each still has its own deadline, and
            no call is lost with another.
        first: see `run_all`.
        is_tried_again: False when the caller sees to a call that was too slow or lost.
    """
    if is_worker():
        yield from (run_here(task, args) for args in arguments)
        return
    for calls, outcomes in _pieces(kind, task, arguments, timeout_s, at_once, first):
        for index, outcome in enumerate(outcomes):
            if is_tried_again and _is_open(outcome):
                ((_, second),) = _pieces(kind, task, [calls[index]], timeout_s, 1, first)
                outcomes[index] = second[0]._replace(tries=2)
        yield from outcomes


def _is_open(outcome: Outcome) -> bool:
    return outcome.kind in ("too_slow", "lost") and outcome.tries < 2


def run_here(task: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """The outcome of a call in this process, without a deadline."""
    try:
        return Outcome("done", task(*args))
    except Exception as error:
        return Outcome("raised", error)


def _pieces(
    kind: Kind,
    task: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    timeout_s: float,
    at_once: int,
    first: Call | None,
) -> Iterator[tuple[list[tuple[Any, ...]], list[Outcome]]]:
    """The calls of each piece with their outcomes, in order; all are put before the first."""
    from .pool import Piece

    calls = iter(arguments)
    pool = _pool("function" if kind == "function" else "compare")
    waiting: deque[tuple[list[tuple[Any, ...]], Future[list[Outcome]]]] = deque()
    try:
        while some := list(itertools.islice(calls, at_once)):
            piece = Piece(task, some, timeout_s, RENEW_AFTER, first)
            waiting.append((some, pool.put(piece, is_urgent=kind != "exact")))
        while waiting:
            some, future = waiting.popleft()
            yield some, future.result()
    finally:  # after an interrupt, nobody waits for the rest
        for _, future in waiting:
            future.cancel()


def _pool(kind: str) -> Pool:
    from .pool import Pool

    with _lock:
        if kind not in _pools:
            _pools[kind] = Pool(kind, worker_count())
        return _pools[kind]


def close_workers() -> None:
    """Stop all workers; the next task that needs one starts them again. Safe to call twice."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _forget() -> None:
    """In a fork of this process: the workers are not its own."""
    global _lock  # noqa: PLW0603  (a thread that is not here may hold the old one)
    _lock = threading.RLock()
    _pools.clear()


atexit.register(close_workers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
