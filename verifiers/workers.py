"""Warm worker processes with deadlines: what may run long runs here and can be killed.

Workers are spawned, never forked (a process with torch threads must not fork), do not import the
caller's ``__main__`` (scripts without a guard and notebooks work), and can be used from any thread.
The deadline of a task counts from the moment a worker takes it. A worker has no workers of its own:
what it is asked to run in one runs where it is, under the deadline that it is under already.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.context
import multiprocessing.util  # its exit handler must be registered before ours, to run after it
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Literal, cast

__all__ = ["Outcome", "close_workers", "run_all"]

log = logging.getLogger(__name__)

MEMORY_BYTES = 4 * 2**30
"""Address space of a worker that compares answers; custom functions may load what they like."""
RENEW_AFTER = 2_000
"""Tasks after which a worker is replaced: sympy's caches only grow."""

_lock = threading.RLock()
_pools: dict[str, tuple[int, Any]] = {}
_main_lock = threading.Lock()
_inside = threading.Event()
"""Set where this process is a worker."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task."""

    kind: Literal["done", "raised", "too_slow", "lost"]
    value: Any = None
    """The return value, or the exception that the task raised."""


class QuietProcess(multiprocessing.context.SpawnProcess):
    """A spawned process that does not run the caller's main module again."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802  (the name that multiprocessing calls)
        import types

        with _main_lock:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = types.ModuleType("__main__")
            try:
                return multiprocessing.context.SpawnProcess._Popen(process_obj)  # type: ignore[attr-defined]
            finally:
                sys.modules["__main__"] = main


class QuietContext(multiprocessing.context.SpawnContext):
    """The spawn context with `QuietProcess`."""

    Process = QuietProcess  # type: ignore[assignment]


def _prepare(kind: str) -> None:
    """First thing in a worker: bounds on memory, and sympy loaded before a deadline runs.

    What a custom function prints goes to standard error: standard output may carry our JSON.
    """
    import signal

    _inside.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    os.dup2(2, 1)
    if kind == "compare":
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        except (ImportError, ValueError, OSError):
            # Windows and some macOS versions have no such limit; the deadline still holds.
            pass
        import sympy  # noqa: F401


def _pool(kind: str) -> Any:
    from pebble import ProcessPool

    with _lock:
        known = _pools.get(kind)
        if known is not None and known[0] == os.getpid() and known[1].active:
            return known[1]
        pool = ProcessPool(
            max_workers=max(1, min(4, os.cpu_count() or 1)),
            max_tasks=RENEW_AFTER,
            initializer=_prepare,
            initargs=(kind,),
            context=cast(Any, QuietContext()),
        )
        _pools[kind] = (os.getpid(), pool)
        return pool


def run_all(
    kind: Literal["compare", "function"],
    task: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    timeout_s: float,
) -> list[Outcome]:
    """The outcomes of a task on many arguments, in order; nothing is raised.

    A task past its deadline is tried once more, when the others are done: then its worker is idle.

    Args:
        kind: which pool: workers with a memory limit and sympy, or plain ones.
        task: a function that workers can import by its module and name.
        arguments: one tuple of picklable values per call.
        timeout_s: deadline of each call, in seconds from the moment a worker takes it.
    """
    if _inside.is_set():
        return [_here(task, args) for args in arguments]
    outcomes = _round(kind, task, arguments, timeout_s)
    for index, outcome in enumerate(outcomes):
        if outcome.kind in ("too_slow", "lost"):
            outcomes[index] = _round(kind, task, [arguments[index]], timeout_s)[0]
    return outcomes


def _here(task: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    try:
        return Outcome("done", task(*args))
    except Exception as error:
        return Outcome("raised", error)


def _round(
    kind: str, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], timeout_s: float
) -> list[Outcome]:
    try:
        futures = [_pool(kind).schedule(task, args=args, timeout=timeout_s) for args in arguments]
    except RuntimeError as error:  # the pool was closed between two calls
        return [Outcome("lost", error)] * len(arguments)
    return [_outcome(future) for future in futures]


def _outcome(future: Any) -> Outcome:
    from pebble import ProcessExpired

    try:
        return Outcome("done", future.result())
    except (FutureTimeout, TimeoutError):
        return Outcome("too_slow")
    except ProcessExpired as error:
        return Outcome("lost", error)
    except Exception as error:
        return Outcome("raised", error)


def close_workers() -> None:
    """Stop all workers; the next task that needs one starts them again. Safe to call twice."""
    with _lock:
        for pid, pool in _pools.values():
            if pid == os.getpid():
                pool.stop()
                pool.join()
        _pools.clear()


atexit.register(close_workers)
