"""A plain function as a verifier: parameters by name, faults as verdicts.

``def f(completion, gold, unit=None): ...`` is complete. Functions that workers can import run
there under a deadline; others (notebooks, ``__main__``, lambdas) run in this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import inspect
import json
import logging
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from stepmark.errors import ConfigError, did_you_mean
from stepmark.protocols import OutcomeVerifier
from stepmark.registry import Registry
from stepmark.types import Item, Reason, Verdict

from .equality import GoldError
from .workers import run_all

__all__ = ["FunctionVerifier", "check_columns", "from_function", "registry"]

log = logging.getLogger(__name__)

registry: Registry[Any] = Registry("verifier", "stepmark.verifiers")
"""All verifiers known by name: decorated ones, and those of installed packages."""

GIVEN = ("completion", "gold", "prompt", "problem", "meta", "id", "task", "solution")
"""Names that every item supplies; ``problem`` is the question's text."""
DEADLINE_S = 10.0


class FunctionVerifier:
    """A plain function, marking one completion at a time; made by `from_function`."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        origin: str | None,
        settings: Mapping[str, Any],
        timeout_s: float,
    ) -> None:
        self.function = function
        self.name = re.sub(r"[^\w.-]", "-", name)
        self.origin = origin
        self.settings = dict(settings)
        self.timeout_s = timeout_s
        self.parameters = _parameters(function, self.settings)
        self._warned = origin is not None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process finds the function again where it is defined, be it a file."""
        if self.origin is None:  # a function of a notebook: as far as pickle itself goes
            return (FunctionVerifier, (self.function, *self._made_of))
        return (restored, self._made_of)

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return (self.name, self.origin, self.settings, self.timeout_s)

    @property
    def key(self) -> str:
        """The name with a digest of the function's source and settings."""
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            source = repr(getattr(self.function, "__code__", self.name))
        text = source + json.dumps(self.settings, sort_keys=True, default=repr)
        return f"{self.name}@{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"

    @property
    def columns(self) -> frozenset[str]:
        """Parameters without a default that only a column of the data can supply."""
        required = {
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        }
        return frozenset(required - set(GIVEN))

    def __repr__(self) -> str:
        return f"FunctionVerifier({self.origin or self.name})"

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; nothing is raised."""
        prepared = [self._arguments(item) for item in items]
        ready = [(i, args) for i, args in enumerate(prepared) if not isinstance(args, Verdict)]
        if self.origin is None:
            results = [self._here(args) for _, args in ready]
        else:
            results = self._in_workers([args for _, args in ready])
        marked = {index: result for (index, _), result in zip(ready, results, strict=True)}
        return [
            entry
            if isinstance(entry, Verdict)
            else _with_gold(marked[index], items[index].problem.gold)
            for index, entry in enumerate(prepared)
        ]

    def _arguments(self, item: Item) -> dict[str, Any] | Verdict:
        problem = item.problem
        known: dict[str, Any] = dict(problem.meta)
        known |= {
            "completion": item.completion,
            "gold": problem.gold,
            "prompt": item.prompt,
            "problem": problem.text,
            "meta": dict(problem.meta),
            "id": problem.id,
            "task": problem.task,
            "solution": problem.solution,
        }
        if any(p.kind is p.VAR_KEYWORD for p in self.parameters.values()):
            return known
        gold = self.parameters.get("gold")
        if problem.gold is None and gold is not None and gold.default is gold.empty:
            return Verdict.abstained(Reason.GOLD_MISSING)
        missing = sorted(self.columns - known.keys())
        if missing:
            return Verdict.abstained("column_missing", gold=problem.gold, columns=missing)
        return {name: known[name] for name in self.parameters if name in known}

    def _here(self, arguments: dict[str, Any]) -> Verdict:
        if not self._warned:
            self._warned = True
            log.warning(
                "The verifier %r cannot be imported by a worker, so it runs in this process, "
                "without a deadline. Put it in a file or module to have both.",
                self.name,
            )
        return marked_by(self.function, {**self.settings, **arguments})

    def _in_workers(self, arguments: list[dict[str, Any]]) -> list[Verdict]:
        calls = [(self.origin, self.settings, args) for args in arguments]
        verdicts = []
        load = (load_task, (self.origin,))
        for outcome in run_all("function", call_task, calls, timeout_s=self.timeout_s, first=load):
            if outcome.kind == "done":
                verdicts.append(outcome.value)
            elif outcome.kind == "too_slow":
                verdicts.append(Verdict.marked(0, Reason.TOO_SLOW, timeout_s=self.timeout_s))
            else:
                reason = Reason.WORKER_LOST if outcome.kind == "lost" else Reason.VERIFIER_RAISED
                verdicts.append(
                    Verdict.failed(reason, error=repr(outcome.value), traceback=repr(outcome.value))
                )
        return verdicts


def restored(
    name: str, origin: str, settings: Mapping[str, Any], timeout_s: float
) -> FunctionVerifier:
    """A function verifier from its pickled parts.

    Raises:
        ConfigError: the file or module of the function is not here, or fails to load.
    """
    return FunctionVerifier(_loaded(origin), name, origin, settings, timeout_s)


def _with_gold(verdict: Verdict, gold: str | None) -> Verdict:
    if verdict.gold is not None or gold is None:
        return verdict
    return Verdict(
        verdict.score, verdict.status, verdict.reason, verdict.extracted, gold, verdict.detail
    )


def _parameters(
    function: Callable[..., Any], settings: Mapping[str, Any]
) -> dict[str, inspect.Parameter]:
    """The parameters that items fill: all but those that a setting has bound."""
    title = getattr(function, "__name__", repr(function))
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    bindable = [name for name in parameters if name not in GIVEN]
    for name in settings:
        if name not in bindable and not takes_all:
            raise ConfigError(
                f"The function {title!r} has no parameter {name!r} for that setting. "
                f"{did_you_mean(name, bindable)} It takes: {', '.join(parameters)}."
            )
    positional = [
        n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
    ]
    if positional:
        raise ConfigError(
            f"The parameter {positional[0]!r} of {title!r} cannot be passed by name. "
            "Verifier functions take named parameters: def f(completion, gold): ..."
        )
    return {name: p for name, p in parameters.items() if name not in settings}


def load_task(origin: str) -> None:
    """In a worker: the function's file or module is loaded, before any deadline begins."""
    with contextlib.suppress(Exception, SystemExit):  # the call says it
        _loaded(origin)


def call_task(origin: str, settings: Mapping[str, Any], arguments: Mapping[str, Any]) -> Verdict:
    """In a worker: the verdict of the function that an import path names."""
    try:
        function = _loaded(origin)
    except (Exception, SystemExit):
        return Verdict.failed(Reason.VERIFIER_RAISED, traceback=traceback.format_exc())
    verdict = marked_by(function, {**settings, **arguments})
    try:
        pickle.dumps(verdict)
    except Exception as error:
        message = (
            f"The verdict cannot leave the worker: {error!r:.200}. "
            "Its detail may hold numbers, texts, lists and tables of them."
        )
        return Verdict.failed(Reason.VERIFIER_RAISED, error=message, traceback=message)
    return verdict


@lru_cache(maxsize=64)
def _loaded(origin: str) -> Callable[..., Any]:
    return Registry[Any]("verifier", "stepmark.verifiers").load(origin)


def marked_by(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Verdict:
    """What a function says, as a verdict; what it raises is an error verdict with its traceback.

    Only a `GoldError`, which `equal` raises, is the data's fault: the row abstains.
    """
    try:
        value = function(**arguments)
    except GoldError as error:
        return Verdict.abstained(Reason.GOLD_UNREADABLE, why=str(error))
    except (Exception, SystemExit) as error:
        return Verdict.failed(
            Reason.VERIFIER_RAISED, error=repr(error), traceback=traceback.format_exc()
        )
    return as_verdict(value)


def as_verdict(value: Any) -> Verdict:
    """The verdict that a bool, a number in [0, 1], None or a Verdict stands for.

    >>> as_verdict(True).score, as_verdict(0.5).score, as_verdict(None).status.value
    (1.0, 0.5, 'abstain')
    >>> as_verdict(2).status.value
    'error'
    """
    if isinstance(value, Verdict):
        return value
    if value is None:
        return Verdict.abstained(Reason.DECLINED)
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return Verdict.marked(value, Reason.JUDGED)
    message = (
        f"The verifier returned {value!r:.200} of type {type(value).__name__}; "
        "allowed: a bool, a number from 0 to 1, None, or a Verdict."
    )
    return Verdict.failed(Reason.VERIFIER_RAISED, error=message, traceback=message)


def from_function(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    origin: str | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout_s: float = DEADLINE_S,
) -> OutcomeVerifier:
    """The verifier that a plain function makes.

    Parameters are matched by name among completion, gold, prompt, problem (the question's text),
    meta, id, task, solution and the data's columns; ``**kwargs`` gets all. The function may return
    a bool, a number in [0, 1], None (no score) or a Verdict.

    Args:
        function: what marks one completion.
        name: the name in keys and reports; the function's own by default.
        origin: ``module:attr`` or ``file.py:attr`` for workers; found by itself where possible.
        settings: parameters that are bound beforehand.
        timeout_s: deadline of one call in a worker, in seconds.

    Raises:
        ConfigError: a setting that the function does not take, or parameters without names.
    """
    title = name or getattr(function, "__name__", type(function).__name__)
    place = origin or _origin(function)
    return FunctionVerifier(function, title, place, settings or {}, timeout_s)


def _origin(function: Callable[..., Any]) -> str | None:
    """The import path under which a worker finds the very same function, or None."""
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    name = getattr(function, "__qualname__", "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not function:
        return None
    if module.__name__ == "__main__":
        return None
    if importlib.machinery.PathFinder.find_spec(module.__name__.split(".")[0]) is not None:
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    return f"{Path(file).resolve()}:{name}" if file and file.endswith(".py") else None


def check_columns(verifier: OutcomeVerifier, columns: Iterable[str]) -> None:
    """Refuse a verifier that asks for a column which the data does not have.

    Args:
        verifier: what will mark the completions.
        columns: names of the data's columns that travel as ``meta``.

    Raises:
        ConfigError: a parameter without a default that no column supplies.
    """
    available = sorted(set(columns))
    for name in sorted(verifier.columns - set(available)):
        hint = did_you_mean(name, [*available, *GIVEN])
        raise ConfigError(
            f"The verifier {verifier.key!r} asks for {name!r}, and no column supplies it. "
            f"{hint} Columns: {', '.join(available) or 'none'}; always there: {', '.join(GIVEN)}. "
            "Rename the parameter, give it a default, or add the column."
        )
