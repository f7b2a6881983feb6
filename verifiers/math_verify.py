r"""The verifier `math-verify`: what the PyPI package Math-Verify says, to compare with.

The package runs in our workers, under our deadline, with its own timeouts off: those rest on
signals, which work in the main thread only. Its parser builds sympy expressions without our bounds,
so the workers' memory limit and deadline are what holds a hostile completion.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from stepmark.errors import ConfigError, SetupError
from stepmark.types import Item, Reason, Verdict

from .extract import extract_gold
from .workers import Outcome, run_all

__all__ = ["MathVerifyVerifier"]

PACKAGE = "math-verify"

MARKED = re.compile(r"\$|\\\(|\\\[|\\boxed|\\fbox|####")
WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
BARE_CHARS = 200
"""A text as short as this, on one line and of one word at most, is an answer and no response."""


class Found(NamedTuple):
    """What the package made of one completion."""

    is_equal: bool
    has_gold: bool
    """The package could read the gold."""
    extracted: str | None


class MathVerifyVerifier:
    """Marks completions as Math-Verify does, with its default extraction of LaTeX and numbers.

    Golds and bare answers are put between dollars, as its authors recommend: without them its
    reader takes LaTeX for prose.

    Args:
        timeout_s: deadline of one completion in a worker, in seconds; tried twice.

    Raises:
        SetupError: the package is not installed; the message holds the pip line.
    """

    name = "math-verify"

    def __init__(self, timeout_s: float = 5.0) -> None:
        if not _is_deadline(timeout_s):
            raise ConfigError(
                f"The setting timeout_s of the verifier 'math-verify' is {timeout_s!r}; it must be "
                "a number of seconds above 0 and at most 86400, such as timeout_s=5."
            )
        if importlib.util.find_spec("math_verify") is None:
            raise SetupError(
                "The verifier 'math-verify' needs the package 'math-verify', which is not "
                "installed. It comes with an extra:\n    pip install 'stepmark[compare]'"
            )
        self.timeout_s = float(timeout_s)

    @property
    def key(self) -> str:
        """``math-verify@`` and the version of the installed package, whose scores these are."""
        return f"{self.name}@{importlib.metadata.version(PACKAGE)}"

    @property
    def columns(self) -> frozenset[str]:
        """None: the gold is enough."""
        return frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, each from a worker."""
        golds = [extract_gold(item.problem.gold or "").text for item in items]
        asked = [index for index, gold in enumerate(golds) if gold]
        arguments = [(golds[index], items[index].completion) for index in asked]
        outcomes = run_all("compare", mark_task, arguments, timeout_s=self.timeout_s)
        found = [Verdict.abstained(Reason.GOLD_MISSING)] * len(items)
        for index, outcome in zip(asked, outcomes, strict=True):
            found[index] = _verdict(outcome, golds[index] or "")
        return found


def mark_task(gold: str, completion: str) -> Found:
    """Math-Verify's own judgement, for a worker."""
    package: Any = importlib.import_module("math_verify")
    # It warns of every call without a timeout; the deadline of the worker is the timeout.
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    wanted = package.parse(_between_dollars(gold), parsing_timeout=None)
    given = _between_dollars(completion) if _is_bare(completion) else completion
    answer = package.parse(given, parsing_timeout=None)
    extracted = next((part for part in reversed(answer) if isinstance(part, str)), None)
    if not wanted or not answer:
        return Found(False, bool(wanted), extracted)
    return Found(bool(package.verify(wanted, answer, timeout_seconds=None)), True, extracted)


def _is_deadline(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 86_400


def _between_dollars(text: str) -> str:
    return text if "$" in text else f"${text.strip()}$"


def _is_bare(completion: str) -> bool:
    r"""Whether a completion is nothing but an answer, such as ``\frac12`` or ``x = 5``."""
    text = completion.strip()
    is_short = 0 < len(text) <= BARE_CHARS and "\n" not in text
    return is_short and not MARKED.search(text) and len(WORD.findall(text)) <= 1


def _verdict(outcome: Outcome, gold: str) -> Verdict:
    if outcome.kind == "too_slow":
        return Verdict.marked(0, Reason.TOO_SLOW, gold=gold, rule=PACKAGE)
    if outcome.kind == "raised" and isinstance(outcome.value, MemoryError | RecursionError):
        return Verdict.marked(0, Reason.TOO_LARGE, gold=gold, rule=PACKAGE)
    if outcome.kind != "done":
        reason = Reason.WORKER_LOST if outcome.kind == "lost" else Reason.VERIFIER_RAISED
        return Verdict.failed(reason, gold=gold, error=repr(outcome.value))
    found: Found = outcome.value
    if not found.has_gold:
        return Verdict.abstained(Reason.GOLD_UNREADABLE, gold=gold)
    if found.extracted is None and not found.is_equal:
        return Verdict.marked(0, Reason.NO_ANSWER, gold=gold, rule=PACKAGE)
    reason = Reason.EQUAL if found.is_equal else Reason.DIFFERENT
    return Verdict.marked(
        float(found.is_equal), reason, extracted=found.extracted, gold=gold, rule=PACKAGE
    )
