"""Verifiers and items on their way to worker processes, and what comes back of them.

Items travel as columns and are marked together: that costs a few microseconds each. Where one is
slow, raises or kills its worker, those it was handed over with are marked again call by call, each
under its own deadline: what one item does costs no other.
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.protocols import OutcomeVerifier
from stepmark.registry import FILE_MODULE, load_file
from stepmark.types import Item, Problem, Reason, Verdict

from .workers import Outcome, run_all, run_each, run_here, worker_count

__all__ = ["CHUNK", "Parcel", "begun", "parcel_of"]

log = logging.getLogger(__name__)

CHUNK = 1024
"""Items in a batch of `mark_many`, and most that a worker is handed together: from a hundredth of a
second of work on, the way there and back is a small part of it."""
BEGIN_S = 10.0
"""Deadline of the quick part of one item, in seconds; its bounds keep it far below."""

TOGETHER_S = 1.0
"""A worker goes on with items that were handed over together for so long, in seconds: what is left
then is slow, and goes call by call."""


class Parcel(NamedTuple):
    """A verifier on its way to a worker."""

    pickled: bytes
    file: str | None
    """The file that its class was loaded from, where that is no module that can be imported."""


def parcel_of(judge: OutcomeVerifier) -> Parcel | None:
    """The verifier for other processes; None for one that lives in this process alone."""
    module = type(judge).__module__
    is_file = module.startswith(FILE_MODULE) and module in sys.modules
    try:
        parcel = Parcel(pickle.dumps(judge), sys.modules[module].__file__ if is_file else None)
    except Exception:
        return None
    return parcel if _arrives(parcel, judge.key) else None


@lru_cache(maxsize=64)
def _arrives(parcel: Parcel, key: str) -> bool:
    """Whether workers can load it: a class of a notebook, for example, is not there."""
    load = (load_task, (parcel,))
    outcome = run_all("exact", load_task, [(parcel,)], timeout_s=BEGIN_S, first=load)[0]
    if outcome.kind == "raised":
        log.warning(
            "The verifier %r cannot be loaded by a worker (%.200r), so it marks in this process. "
            "Put it in a file or module to use all workers.",
            key,
            outcome.value,
        )
    return outcome.kind != "raised"


def begun(parcel: Parcel, items: tuple[Item, ...]) -> list[Any]:
    """What the verifier's `begin` says of each item, from the workers."""
    share = min(max(-(-len(items) // (2 * worker_count())), 8), CHUNK)
    parts = [items[start : start + share] for start in range(0, len(items), share)]
    outcomes = run_each(
        "exact",
        begin_together,
        [(parcel, *_columns(part)) for part in parts],
        timeout_s=BEGIN_S,
        at_once=1,
        first=(load_task, (parcel,)),
        is_tried_again=False,
    )
    found: list[Any] = []
    left: list[int] = []
    for part, outcome in zip(parts, outcomes, strict=True):
        some = _entries(*outcome.value) if outcome.kind == "done" else []
        left += range(len(found) + len(some), len(found) + len(part))
        found += [*some, *part[len(some) :]]
    for index, entry in zip(left, _one_by_one(parcel, [items[i] for i in left]), strict=True):
        found[index] = entry
    return found


def _one_by_one(parcel: Parcel, items: Sequence[Item]) -> list[Any]:
    """As `begun`, call by call: where something is slow or fails, it costs no other item."""
    share = -(-len(items) // (4 * worker_count()))
    outcomes = run_each(
        "exact",
        begin_task,
        [(parcel, item) for item in items],
        timeout_s=BEGIN_S,
        at_once=min(max(share, 1), CHUNK),
        first=(load_task, (parcel,)),
    )
    return [_said(parcel, outcome, item) for outcome, item in zip(outcomes, items, strict=True)]


def _said(parcel: Parcel, outcome: Outcome, item: Item) -> Any:
    """What came back of an item; one that cannot travel is looked at in this process."""
    if outcome.kind == "done":
        return outcome.value
    if outcome.kind == "raised" and not _travels(item):
        outcome = run_here(begin_task, (parcel, item))
    return outcome.value if outcome.kind == "done" else _fault(outcome, item)


def _travels(item: Item) -> bool:
    try:
        pickle.dumps(item)
    except Exception:  # pickling runs code of whatever the columns hold
        return False
    return True


def _columns(items: tuple[Item, ...]) -> tuple[Any, ...]:
    """Items as columns, their problems once each: they travel in a third of the time."""
    problems = {id(item.problem): item.problem for item in items}
    places = {key: place for place, key in enumerate(problems)}
    return (
        _taken(Problem, problems.values()),
        [places[id(item.problem)] for item in items],
        _taken(Item, items)[1:],
    )


def _taken(kind: type, rows: Iterable[Any]) -> list[list[Any]]:
    """The fields of objects of a dataclass, column by column."""
    rows = list(rows)
    return [list(map(attrgetter(field.name), rows)) for field in fields(kind)]


def _made(kind: type, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Objects of a frozen dataclass, of its fields: five times as fast as one by one.

    They keep the laws of their class: they were made where their fields come from.
    """
    made = [object.__new__(kind) for _ in columns[0]]
    for field, column in zip(fields(kind), columns, strict=True):
        deque(map(getattr(kind, field.name).__set__, made, column), maxlen=0)
    return made


def load_task(parcel: Parcel) -> None:
    """In a worker: the verifier is loaded, or it raises."""
    _arrived(parcel)


def begin_task(parcel: Parcel, item: Item) -> Any:
    """In a worker: the verdict on an item, or what is left to settle."""
    return _arrived(parcel).begin([item])[0]


def begin_together(
    parcel: Parcel, problems: list[Any], places: list[int], rest: list[Any]
) -> tuple[list[Any], list[Any]]:
    """In a worker: what is said of the first items, up to one that raises or the end of a time.

    Returns:
        One entry per item, None for each verdict; and the fields of the verdicts as columns.
    """
    begin, end = _arrived(parcel).begin, time.monotonic() + TOGETHER_S
    stories = _made(Problem, problems)
    entries: list[Any] = []
    verdicts: list[Verdict] = []
    for item in _made(Item, [[stories[place] for place in places], *rest]):
        try:
            found = begin([item])[0]
        except Exception:
            break  # alone, it will say so itself
        if type(found) is Verdict:
            verdicts.append(found)
            found = None
        entries.append(found)
        if time.monotonic() > end:
            break
    return entries, _taken(Verdict, verdicts)


@lru_cache(maxsize=16)
def _arrived(parcel: Parcel) -> Any:
    if parcel.file is not None:
        load_file(Path(parcel.file))
    return pickle.loads(parcel.pickled)


def _entries(entries: list[Any], columns: list[Any]) -> list[Any]:
    """Verdicts, and what is left to settle."""
    verdicts = _made(Verdict, columns)
    if len(verdicts) == len(entries):
        return verdicts
    others = iter(verdicts)
    return [next(others) if entry is None else entry for entry in entries]


def _fault(outcome: Outcome, item: Item) -> Verdict:
    """The verdict on an item of which nothing came back."""
    gold = item.problem.gold
    if outcome.kind == "too_slow":
        return Verdict.marked(0, Reason.TOO_SLOW, gold=gold, timeout_s=BEGIN_S)
    reason = Reason.WORKER_LOST if outcome.kind == "lost" else Reason.VERIFIER_RAISED
    said = repr(outcome.value)
    return Verdict.failed(reason, gold=gold, error=said, traceback=said)
