"""The graders that are measured, each with the same four verbs; runs in a child process.

`Ours` is `MathVerifier` with its defaults. `Peer` is Math-Verify as its readme recommends: golds go
in as ``$gold$``, extraction and timeouts are its defaults, and a gold is read once for all
completions of its problem, as ours is.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
import sys
import types
from collections.abc import Sequence
from typing import Any, Protocol

Pair = tuple[str, str]
"""A completion and its gold."""

MARKED = re.compile(r"(?<!\\)\$|\\boxed")
"""What the peer finds mathematics in without help: an amount in \\$ is not marked."""

WARM_UP: tuple[Pair, ...] = (
    (r"So it is \boxed{\frac{3}{6}}.", "1/2"),
    (r"Thus $x = \boxed{2\sqrt{5}}$.", r"\sqrt{20}"),
    (r"The roots are \boxed{\{1, 2\}}.", r"\{2, 1\}"),
    (r"We get \boxed{(x+1)^2}.", "x^2+2x+1"),
    (r"We get \boxed{\cos(2t)}.", r"2\cos^2 t - 1"),
    (r"We get \boxed{\sqrt{3+2\sqrt{2}}}.", r"1+\sqrt{2}"),
    (r"We get \boxed{\frac{\sin 2u}{2\sin u}}.", r"\cos u"),
    (r"We get \boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}.", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    (r"We get \boxed{[0, 1)}.", r"0 \le x < 1"),
    (r"The answer is \boxed{\text{(B)}}.", "B"),
    ("She makes 9 * 2 = $<<9*2=18>>18.\nA: 18", "18"),
    (r"It is \boxed{150 \text{ cm}}.", r"1.5 \text{ m}"),
    (r"It is \boxed{x^{10} + \log_2 5}.", r"\ln 7"),
)
"""Marked before anything is timed, so that imports, grammars and workers are there."""


class Grader(Protocol):
    """What the child process needs of a grader."""

    opened: int
    """Comparisons that were left open, of those that were marked without workers."""

    def mark(self, pairs: Sequence[Pair]) -> list[Any]:
        """Marks pairs: this is what is timed, from the texts to the grader's own results."""
        ...

    def report(self, results: Sequence[Any]) -> list[dict[str, Any]]:
        """Of each result, `correct` (true, false, or null when it was not marked) and why."""
        ...

    def forget(self) -> None:
        """Empty every cache that holds texts: the next pair is the first of its kind."""
        ...

    def prepare(self, gold: str) -> None:
        """Read a gold, so that marking a completion need not."""
        ...


class Ours:
    """Stepmark's verifier `math`.

    Args:
        pool: False: comparisons that would go to sympy in a worker are counted in `opened` and
            stay undecided, so that only the work of this process is seen.
    """

    def __init__(self, pool: bool = True) -> None:
        from stepmark.types import Item, Problem, Verdict
        from stepmark.verifiers import MathVerifier

        self.item, self.problem, self.verdict = Item, Problem, Verdict
        self.judge = MathVerifier()
        self.pool, self.opened = pool, 0
        self.mark(WARM_UP)

    def mark(self, pairs: Sequence[Pair]) -> list[Any]:
        items = [self.item(self.problem("0", "", gold), text) for text, gold in pairs]
        if self.pool:
            return self.judge(items)
        found = self.judge.begin(items)
        self.opened += sum(not isinstance(entry, self.verdict) for entry in found)
        return found

    def report(self, results: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "correct": verdict.correct,
                "reason": str(verdict.reason),
                "extracted": verdict.extracted,
                "method": str(verdict.detail.get("method", "")),
                "rule": str(verdict.detail.get("rule", verdict.detail.get("why", ""))),
            }
            for verdict in results
        ]

    def forget(self) -> None:
        from stepmark.verifiers import MathVerifier

        self.judge = MathVerifier()
        for cache in text_caches("stepmark.verifiers"):
            cache.cache_clear()

    def prepare(self, gold: str) -> None:
        _ = self.judge.prepare(gold).node  # read now: it would be at the first comparison


class Peer:
    """Math-Verify, as recommended."""

    opened = 0

    def __init__(self, pool: bool = True) -> None:
        from math_verify import parse, verify

        logging.disable(logging.CRITICAL)
        self.parse, self.verify = parse, verify
        self.golds: dict[str, list[Any]] = {}
        self.mark(WARM_UP)

    def mark(self, pairs: Sequence[Pair]) -> list[Any]:
        found = []
        for text, gold in pairs:
            self.prepare(gold)
            answer = self.parse(text)
            found.append((self.verify(self.golds[gold], answer), answer))
        return found

    def report(self, results: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {"correct": bool(correct), "extracted": str(answer[-1]) if answer else None}
            for correct, answer in results
        ]

    def forget(self) -> None:
        self.golds.clear()
        for cache in text_caches("math_verify"):
            cache.cache_clear()

    def prepare(self, gold: str) -> None:
        if gold not in self.golds:
            self.golds[gold] = self.parse(gold if MARKED.search(gold) else f"${gold}$")


GRADERS: dict[str, type[Ours] | type[Peer]] = {"ours": Ours, "peer": Peer}


def modules(package: str) -> list[types.ModuleType]:
    """The loaded modules of a package."""
    return [
        m for name, m in sys.modules.items() if name == package or name.startswith(package + ".")
    ]


@functools.lru_cache(maxsize=4)
def text_caches(package: str) -> list[Any]:
    """The caches of a package whose entries come from texts.

    Functions without parameters remember a table, not a text; so do those that are given settings
    alone (their parameters are named config or target): both are kept, as every user has them.
    """
    found: dict[int, Any] = {}
    for module in modules(package):
        for value in vars(module).values():
            if not hasattr(value, "cache_clear") or value is text_caches:
                continue
            names = [name.lower() for name in inspect.signature(value).parameters]
            if any("config" not in name and "target" not in name for name in names):
                found[id(value)] = value
    return list(found.values())
