"""The contract of outcome verifiers, as a test that anybody can run on theirs."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from stepmark.protocols import OutcomeVerifier
from stepmark.types import Item, Problem, Reason, Status, Verdict
from stepmark.verifiers import load_verifier

__all__ = ["Check", "CheckFailed", "Report", "check_verifier"]

ODD_TEXTS = (
    "",
    " \n\t",
    "\\boxed{",
    "\\boxed{}",
    "}" * 50,
    "\x00\x07",
    "\ud800 lone surrogate",
    "\u202e right to left \u202c",
    "９９ full width",
    "__import__('os').system('exit 1')",
    "9^{9^{9^9}}",
    "\\boxed{(1+x)^{100000}}",
    "\\boxed{" * 2_000,
    "\\frac{" * 2_000,
    "(" * 10_000,
    "\\boxed{\\begin{pmatrix}" + "1&" * 5_000 + "\\end{pmatrix}}",
    "\\boxed{" + "9" * 100_000 + "}",
    "\x1b[31mred\x1b[0m \\boxed{\x1b}",
    "<think>never closed",
    "\\boxed{17} \\boxed{18} \\boxed{19}",
    "x" * 200_000,
)
"""Completions that a policy can write; none may make a verifier raise."""


class CheckFailed(AssertionError):
    """A part breaks its contract; the message lists every promise that it broke."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept."""

    name: str
    passed: bool
    seen: str = ""
    """What was seen instead, when it was not."""


@dataclass(frozen=True, slots=True)
class Report:
    """All promises of one part."""

    key: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        return all(check.passed for check in self.checks)

    def raise_if_failed(self) -> None:
        """Raise `CheckFailed` with the promises that were broken, if any."""
        broken = [f"{check.name}: {check.seen}" for check in self.checks if not check.passed]
        if broken:
            raise CheckFailed(f"{self.key} breaks its contract.\n  " + "\n  ".join(broken))


def check_verifier(
    verifier: str | Mapping[str, Any] | Callable[..., Any] | OutcomeVerifier,
    *,
    items: Sequence[Item] = (),
    strict: bool = True,
) -> Report:
    """The report on a verifier's contract.

    A plain text is marked before the verifier's deadline; one verdict per item and in order; a
    batch marks as items do one by one; twice, and from another thread, gives the same; the verifier
    pickles and its copy marks the same (but for functions that no worker could import); scores lie
    in [0, 1]; nothing is raised and nothing is an error, whatever the text, and without a gold;
    verdicts survive the store; the key is file-safe. A verifier that is too slow for the first is
    not asked for the others.

    Args:
        verifier: a reference as `stepmark.verifiers.load_verifier` takes it, or an object.
        items: items of your own with the columns that the verifier asks for; made-up ones are
            used beside them, with the text "1" in every column that it asks for.
        strict: raise when a promise is broken; else only report.

    Raises:
        CheckFailed: a promise is broken and ``strict`` is set.

    >>> check_verifier("exact").passed
    True
    """
    subject = load_verifier(verifier)
    tried = [*items, *_plain(subject)]
    odd = _odd(subject)
    no_gold = [_without_gold(item) for item in tried]
    no_columns = [replace(item, problem=replace(item.problem, meta={})) for item in tried]
    prompt = _attempt("a plain text is marked before the deadline", lambda: _prompt(subject, tried))
    if not prompt.passed:  # everything else would wait for the deadline, many times
        return _reported(subject, [prompt], strict)
    checks = [
        prompt,
        _attempt("the key is file-safe text", lambda: _key(subject)),
        _attempt("key and columns pickle", lambda: _pickles(subject)),
        _attempt("columns are a set of names", lambda: _names(subject)),
        _attempt("a pickled copy marks the same", lambda: _copied(subject, tried)),
        _attempt("an empty batch gives an empty list", lambda: _is([], subject([]))),
        _attempt("one verdict per item", lambda: _counts(subject, tried)),
        _attempt("a batch marks as items do one by one", lambda: _one_by_one(subject, tried)),
        _attempt("a reversed batch gives reversed verdicts", lambda: _reversed(subject, tried)),
        _attempt("marking twice gives the same", lambda: _is(subject(tried), subject(tried))),
        _attempt("another thread marks the same", lambda: _threaded(subject, tried)),
        _attempt("a problem without a gold is no error", lambda: _no_errors(subject, no_gold)),
        _attempt("a row without its columns raises nothing", lambda: _counts(subject, no_columns)),
        _attempt("odd texts raise nothing", lambda: _counts(subject, odd)),
        _attempt("odd texts are not errors of the verifier", lambda: _no_errors(subject, odd)),
        _attempt("scores lie in [0, 1]", lambda: _scores(subject, [*tried, *odd])),
        _attempt("verdicts survive the store", lambda: _stored(subject, [*tried, *odd, *no_gold])),
    ]
    return _reported(subject, checks, strict)


def _reported(subject: OutcomeVerifier, checks: Sequence[Check], strict: bool) -> Report:
    report = Report(str(getattr(subject, "key", subject)), tuple(checks))
    if strict:
        report.raise_if_failed()
    return report


def _attempt(name: str, claim: Callable[[], str | None]) -> Check:
    """A claim returns None when it holds, else what was seen; a raise is what was seen, too."""
    try:
        seen = claim()
    except Exception as error:
        seen = f"raised {type(error).__name__}: {str(error)[:300]}"
    return Check(name, seen is None, seen or "")


def _item(verifier: OutcomeVerifier, index: int, completion: str, gold: str) -> Item:
    meta = dict.fromkeys(verifier.columns, "1")
    problem = Problem(f"check/{index}", "What is it?", gold, gold, "check", meta)
    return Item(problem, completion, "What is it?")


def _plain(verifier: OutcomeVerifier) -> list[Item]:
    pairs = [
        ("\\boxed{1}", "1"),
        ("The answer is 2.", "1"),
        ("#### 3", "3"),
        ("I do not know", "4"),
    ]
    return [_item(verifier, i, text, gold) for i, (text, gold) in enumerate(pairs)]


def _odd(verifier: OutcomeVerifier) -> list[Item]:
    return [_item(verifier, index, text, "17") for index, text in enumerate(ODD_TEXTS)]


def _without_gold(item: Item) -> Item:
    return replace(item, problem=replace(item.problem, gold=None, solution=None))


def _prompt(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    slow = [verdict for verdict in verifier(items[:1]) if verdict.reason == Reason.TOO_SLOW]
    return f"too slow ({slow[0].detail}); nothing else was checked" if slow else None


def _key(verifier: OutcomeVerifier) -> str | None:
    key = verifier.key
    good = isinstance(key, str) and re.fullmatch(r"[\w.@-]{1,120}", key)
    return None if good else f"the key {key!r}; allowed are letters, digits and . _ - @"


def _pickles(verifier: OutcomeVerifier) -> str | None:
    pair = (verifier.key, verifier.columns)
    return _is(pair, pickle.loads(pickle.dumps(pair)))


def _names(verifier: OutcomeVerifier) -> str | None:
    columns = verifier.columns
    good = isinstance(columns, frozenset) and all(isinstance(name, str) for name in columns)
    return None if good else f"{columns!r:.200}; allowed is a frozenset of column names"


def _copied(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    if not _importable(verifier):
        return None
    copy = pickle.loads(pickle.dumps(verifier))
    return _is((verifier.key, verifier(items)), (copy.key, copy(items)))


def _importable(verifier: Any) -> bool:
    """False for functions of notebooks and lambdas: they run in this process only, and say so."""
    parts = getattr(verifier, "parts", ())
    return getattr(verifier, "origin", "") is not None and all(map(_importable, parts))


def _threaded(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        return _is(verifier(items), pool.submit(verifier, items).result())


def _stored(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    for verdict in verifier(items):
        row = verdict.to_row()
        if (seen := _is(row, json.loads(json.dumps(row)))) is not None:
            return f"{seen}; a detail may hold numbers, texts, lists and tables of them"
    return None


def _counts(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    verdicts = verifier(items)
    if not isinstance(verdicts, list) or any(not isinstance(v, Verdict) for v in verdicts):
        return f"{verdicts!r:.200} instead of a list of Verdicts"
    return (
        None if len(verdicts) == len(items) else f"{len(verdicts)} verdicts for {len(items)} items"
    )


def _one_by_one(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    return _is(verifier(items), [verdict for item in items for verdict in verifier([item])])


def _reversed(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    return _is(verifier(items), verifier(items[::-1])[::-1])


def _no_errors(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    for item, verdict in zip(items, verifier(items), strict=True):
        if verdict.status is Status.ERROR:
            last = str(verdict.detail.get("traceback", verdict.reason)).strip().splitlines()[-1:]
            return f"the completion {item.completion[:40]!r} is an error verdict ({' '.join(last)})"
    return None


def _scores(verifier: OutcomeVerifier, items: Sequence[Item]) -> str | None:
    for verdict in verifier(items):
        if verdict.score is not None and not 0 <= verdict.score <= 1:
            return f"the score {verdict.score!r}"
    return None


def _is(expected: object, seen: object) -> str | None:
    return None if expected == seen else f"{seen!r:.200} where {expected!r:.200} was seen before"
