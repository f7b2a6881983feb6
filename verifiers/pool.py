"""Threads that each drive one worker: calls in, outcomes out, killed at the deadline, replaced."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from .processes import Starter, Worker, starter
from .serving import FLUSH_S
from .workers import Call, Outcome

__all__ = ["Piece", "Pool"]

STOPPED = "the workers were stopped"
LOAD_S = 120.0
"""Deadline of what a fresh worker loads first, in seconds: a verifier may import much."""
START_AGAIN_S = 5.0
"""After a worker that did not start, none is tried for so long: each failure takes its time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Calls of one task that go to a worker together."""

    task: Callable[..., Any]
    arguments: Sequence[tuple[Any, ...]]
    timeout_s: float
    renew_after: int
    """The worker is replaced when it has run so many calls."""
    first: Call | None = None
    """What a fresh worker does before any deadline begins."""


class Pool:
    """At most ``size`` workers of a kind; they are started when there is something to do.

    Args:
        kind: ``compare`` or ``function``.
        size: how many workers there may be.
        origin: what makes, for a kind, that which starts workers.
    """

    def __init__(self, kind: str, size: int, origin: Callable[[str], Starter] = starter) -> None:
        self.kind = kind
        self.size = size
        self.origin = origin
        self.source: Starter | None = None
        self.starting = threading.Lock()
        self.ready = threading.Condition()
        self.waiting: list[tuple[int, int, Piece, Future[list[Outcome]]]] = []
        self.numbers = itertools.count()
        self.drivers: list[Driver] = []
        self.idle = 0
        self.is_closed = False
        self.trouble = ("", float("-inf"))

    def put(self, piece: Piece, *, is_urgent: bool) -> Future[list[Outcome]]:
        """A future of one outcome per call; nothing is raised from it."""
        future: Future[list[Outcome]] = Future()
        with self.ready:
            if self.is_closed:
                future.set_result(_lost(piece))
                return future
            heapq.heappush(self.waiting, (not is_urgent, next(self.numbers), piece, future))
            self._grow()
            self.ready.notify()
        return future

    def _grow(self) -> None:
        wanted = min(self.size, len(self.drivers) + len(self.waiting) - self.idle)
        while len(self.drivers) < wanted:
            self.drivers.append(Driver(self))
            self.drivers[-1].thread.start()

    def take(self, driver: Driver) -> tuple[Piece, Future[list[Outcome]]] | None:
        """The next piece, when there is one; None when the driver shall end."""
        with self.ready:
            self.idle += 1
            try:
                while not self.is_closed and len(self.drivers) <= self.size:
                    if not self.waiting:
                        self.ready.wait()
                        continue
                    _, _, piece, future = heapq.heappop(self.waiting)
                    if future.set_running_or_notify_cancel():
                        return piece, future
                self.drivers.remove(driver)
                return None
            finally:
                self.idle -= 1

    def resize(self, size: int) -> None:
        """Allow another number of workers."""
        with self.ready:
            self.size = size
            self._grow()
            self.ready.notify_all()

    def worker(self) -> Worker:
        """A fresh worker; OSError when there can be none."""
        if self.is_closed:
            raise OSError(STOPPED)
        said, when = self.trouble
        if time.monotonic() - when < START_AGAIN_S:
            raise OSError(said)
        try:
            with contextlib.suppress(OSError):
                return self._source().start()
            return self._source().start()  # a new one, where the old one was killed
        except OSError as error:
            self.trouble = (str(error), time.monotonic())
            raise

    def _source(self) -> Starter:
        with self.starting:
            if self.source is not None and not self.source.is_alive():
                self.source.close()
                self.source = None
            if self.source is None:
                self.source = self.origin(self.kind)
            return self.source

    def close(self) -> None:
        """End all workers; what waits is lost."""
        with self.ready:
            self.is_closed = True
            drivers, waiting = list(self.drivers), list(self.waiting)
            self.waiting.clear()
            self.ready.notify_all()
        for _, _, piece, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(_lost(piece))
        for driver in drivers:
            driver.stop()
        for driver in drivers:
            driver.thread.join()
        if self.source is not None:
            self.source.close()


class Driver:
    """A thread with a worker of its own."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.worker: Worker | None = None
        self.calls = 0
        self.done_first: set[Call] = set()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._drive, name="stepmark-driver", daemon=True)

    def stop(self) -> None:
        """Kill the worker that this waits for: its pool is closed."""
        with self.lock:
            if self.worker is not None:
                self.worker.kill()

    def _drive(self) -> None:
        while (taken := self.pool.take(self)) is not None:
            piece, future = taken
            try:
                future.set_result(self._run(piece))
            except Exception as error:  # a defect of ours: told to the caller, not lost here
                future.set_exception(error)
            del taken, piece, future  # nothing is held while this waits
        self._part()

    def _run(self, piece: Piece) -> list[Outcome]:
        """One outcome per call.

        When something goes wrong among several calls, they go on one by one until it is known
        whose fault it was; that call's outcome then tells of two tries.
        """
        outcomes: list[Outcome] = []
        is_alone, tries = len(piece.arguments) == 1, 1
        while (start := len(outcomes)) < len(piece.arguments):
            end = start + 1 if is_alone else len(piece.arguments)
            good, fault = self._ask(piece, piece.arguments[start:end])
            outcomes += good
            if fault is not None and is_alone:
                outcomes.append(Outcome(fault.kind, fault.value, max(tries, fault.tries)))
                is_alone, tries = len(piece.arguments) == 1, 1
            elif fault is not None:
                is_alone, tries = True, 1 if fault.kind == "raised" else 2
        return outcomes

    def _ask(
        self, piece: Piece, arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[list[Outcome], Outcome | None]:
        """The outcomes of the first calls, and what went wrong with the one after them."""
        good: list[Outcome] = []
        try:
            body = pickle.dumps((piece.task, arguments))
            worker = self._met(piece.renew_after)
            self._prepare(worker, piece.first)
            _request(worker, body)
            while len(good) < len(arguments):
                good += _loaded(worker.receive(piece.timeout_s + FLUSH_S))
        except Refused as refused:
            self._part(is_killed=True)  # it may have more to say of this request
            fault = Outcome("raised", refused.args[0])
        except TimeoutError:
            self._part(is_killed=True)
            fault = Outcome("too_slow")
        except (OSError, EOFError) as error:
            fault = self._lost(error)
        except Exception as error:  # the arguments cannot be pickled
            fault = Outcome("raised", error)
        else:
            self.calls += len(good)
            if any(isinstance(outcome.value, MemoryError) for outcome in good):
                self._part(is_killed=True)  # what it holds may be most of what it may hold
            return good, None
        return good, fault

    def _met(self, renew_after: int) -> Worker:
        """A worker that waits for a request."""
        if self.worker is not None and (self.calls >= renew_after or not self.worker.is_ready()):
            self._part()
        if self.worker is None:
            worker = self.pool.worker()
            with self.lock:
                self.worker, self.calls = worker, 0
            self.done_first.clear()
            if self.pool.is_closed:  # `stop` has not seen it
                self._part(is_killed=True)
                raise OSError(STOPPED)
        return self.worker  # type: ignore[return-value]

    def _prepare(self, worker: Worker, first: Call | None) -> None:
        """Let a worker load what its calls need; what is wrong with that, the calls will tell."""
        if first is None or first in self.done_first:
            return
        task, args = first
        _request(worker, pickle.dumps((task, [args])))
        try:
            worker.receive(LOAD_S)
        except TimeoutError:
            self._part(is_killed=True)
            raise OSError(f"loading the verifier takes more than {LOAD_S:.0f} s") from None
        self.done_first.add(first)

    def _part(self, *, is_killed: bool = False) -> None:
        with self.lock:
            worker, self.worker = self.worker, None
            if worker is not None:
                if is_killed:
                    worker.kill()
                worker.close()

    def _lost(self, error: Exception) -> Outcome:
        """What is to say of a worker that died, or of one that could not be started."""
        if self.pool.is_closed:
            return Outcome("lost", ChildProcessError(STOPPED), 2)
        with self.lock:
            worker, self.worker = self.worker, None
            if worker is None:
                return Outcome("lost", ChildProcessError(f"no worker could be started: {error}"))
            worker.kill()
            return Outcome("lost", ChildProcessError(f"the worker {worker.ending()}"))


class Refused(Exception):
    """The worker could not load its request, or what it sent cannot be loaded here."""


def _loaded(frame: bytes) -> list[Outcome]:
    try:
        sent = pickle.loads(frame)
    except Exception as error:
        raise Refused(error) from error
    if sent[0][0] == "refused":
        raise Refused(sent[0][1])
    return [Outcome(*pair) for pair in sent]


def _lost(piece: Piece) -> list[Outcome]:
    """Outcomes of calls that no worker will take: they are not tried again."""
    return [Outcome("lost", ChildProcessError(STOPPED), 2)] * len(piece.arguments)


def _request(worker: Worker, body: bytes) -> None:
    """Hand over a task and arguments, with the import path and folder in which they mean something.

    In two frames: the body is long, and not copied once more.
    """
    folder = os.sep
    with contextlib.suppress(OSError):  # it was removed
        folder = os.getcwd()
    worker.send(pickle.dumps((sys.path, folder)))
    worker.send(body)
