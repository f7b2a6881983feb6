r"""The verifier `math`: does a completion end in the answer that the gold is?

Extract, read, compare: exact rules in this process, and sympy in a worker for what they leave
open. What the completion itself did wrong (nothing found, unreadable, too large, too slow) is
score 0 with its own reason; what the gold or the machine did has no score.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepmark.types import Item, Problem, Reason, Status, Verdict

from .compare import Comparison, Units, compare
from .extract import Extraction, extract, extract_gold, short_whole
from .folding import fold, text_key
from .gold import Gold
from .letters import is_letter, stated_letter
from .limits import TooLarge, Unreadable
from .reading import parse
from .rendering import spelled
from .settings import MathSettings, settings_key, settings_of
from .spellings import same_spelling
from .tree import Node, Number, Text
from .workers import Outcome, run_all

__all__ = ["Explanation", "MathVerifier", "explain"]


@dataclass(frozen=True, slots=True)
class Open:
    """A comparison that waits for a worker."""

    extraction: Extraction
    gold: Gold
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that led to a verdict, for people."""

    verdict: Verdict
    extracted: str | None
    method: str
    """The extraction rule that fired."""
    completion_form: str | None
    """How the answer was read; None when it could not be."""
    gold_form: str | None
    rule: str
    """The rule that decided."""


class MathVerifier:
    """Marks completions by the equality of their answer and the gold.

    Args:
        units: ``strip`` drops a unit that one side lacks and compares units that both have;
            ``require`` wants the gold's unit; ``ignore`` drops all.
        strict: accept answers in a box or after ``####`` only; short for ``policy="strict"``.
        timeout_s: deadline of one symbolic comparison in a worker, in seconds; tried twice.
        policy: which extraction rules are allowed: ``lenient``, ``strict``, ``boxed+phrase`` ...
        min_digits: a decimal stands for an exact value that it rounds if it shows so many
            significant digits.

    Raises:
        ConfigError: an unknown setting or a value that is not allowed.
    """

    name = "math"
    version = 2

    def __init__(
        self,
        units: Units = "strip",
        strict: bool = False,
        timeout_s: float = 5.0,
        policy: str = "lenient",
        min_digits: int = 4,
        **unknown: Any,
    ) -> None:
        given = {"units": units, "strict": strict, "timeout_s": timeout_s, "policy": policy}
        given |= {"min_digits": min_digits}
        self.settings = settings_of(MathSettings, given | unknown, self.name)
        self.policy = self.settings.extraction
        self._golds: dict[str, Gold] = {}

    @property
    def key(self) -> str:
        """``math@2``, with a digest of the settings when they are not the defaults."""
        return settings_key(f"{self.name}@{self.version}", self.settings)

    @property
    def columns(self) -> frozenset[str]:
        """None: the gold is enough."""
        return frozenset()

    def __repr__(self) -> str:
        return f"MathVerifier({', '.join(f'{k}={v!r}' for k, v in asdict(self.settings).items())})"

    def __getstate__(self) -> dict[str, Any]:
        """Golds that were read stay behind: another process reads its own."""
        return {**self.__dict__, "_golds": {}}

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; open comparisons of the whole batch go to the workers together."""
        return self.settle(self.begin(items))

    def begin(self, items: Sequence[Item]) -> list[Verdict | Open]:
        """The part that is exact and quick: verdicts, and comparisons that it leaves open."""
        return [self._mark(item) for item in items]

    def settle(self, found: Sequence[Verdict | Open]) -> list[Verdict]:
        """All verdicts: what `begin` left open is proved or refuted by workers.

        A comparison that comes several times, as in a group of completions, is made once.
        """
        pairs: dict[tuple[Node, Node], None] = {}
        for entry in found:
            if isinstance(entry, Open):
                pairs |= dict.fromkeys(entry.comparison.pairs)
        if not pairs:
            return [entry for entry in found if isinstance(entry, Verdict)]
        outcomes = run_all("compare", prove_task, list(pairs), timeout_s=self.settings.timeout_s)
        proved = dict(zip(pairs, outcomes, strict=True))
        return [
            _settled(entry, [proved[pair] for pair in entry.comparison.pairs])
            if isinstance(entry, Open)
            else entry
            for entry in found
        ]

    def prepare(self, gold: str) -> Gold:
        """The gold, read; remembered for the other completions of its problem."""
        known = self._golds.get(gold)
        if known is None:
            if len(self._golds) >= 20_000:
                self._golds.clear()
            known = self._golds[gold] = Gold(gold)
        return known

    def find(self, completion: str, gold: Gold) -> Extraction:
        """The answer in a completion.

        As `extract` finds it; but a short completion that is, word for word, the gold ("Evelyn",
        "B", "4:30 p.m.") is an answer as a whole, where only the last resorts would apply.
        """
        found = extract(completion, policy=self.policy)
        if found.method in ("last_maths", "last_number", "none"):
            whole = short_whole(completion) if self.policy.whole else None
            if whole is not None and (
                text_key(whole) == gold.key
                or (isinstance(gold.node, Text) and fold(whole) == fold(gold.text))
                or same_spelling(gold.text, whole) is not None
            ):
                return Extraction(whole, "whole", 0)
            asked = self.policy.phrase and is_letter(gold.text)
            if asked and (letter := stated_letter(completion)) is not None:
                return Extraction(letter, "option", 0)
        return found

    def _mark(self, item: Item) -> Verdict | Open:
        if item.problem.gold is None or not item.problem.gold.strip():
            return Verdict.abstained(Reason.GOLD_MISSING)
        gold = self.prepare(item.problem.gold)
        if not gold.text:
            return Verdict.abstained(Reason.GOLD_MISSING)
        found = self.find(item.completion, gold)
        if found.text is None or not found.text.strip():
            return Verdict.marked(0, Reason.NO_ANSWER, gold=gold.text, method=found.method)
        try:
            return self._judge(found, gold)
        except TooLarge as error:
            return _wrong(Reason.TOO_LARGE, found, gold, str(error))
        except RecursionError:
            return _wrong(Reason.TOO_LARGE, found, gold, "nested too deep")
        except Exception as error:  # a defect here must not stop a run: it becomes an error verdict
            return Verdict.failed(
                Reason.VERIFIER_RAISED,
                gold=gold.text,
                error=repr(error),
                traceback=traceback.format_exc(),
            )

    def _judge(self, found: Extraction, gold: Gold) -> Verdict | Open:
        text = found.text or ""
        if gold.whole is not None and len(text) < 19 and text.isascii() and text.isdecimal():
            if int(text) == gold.whole:
                return _equal(found, gold, "rational")
            return _wrong(Reason.DIFFERENT, found, gold, "rational")
        if text == gold.text or (len(text) <= 4000 and text_key(text) == gold.key):
            return _equal(found, gold, "same text")
        if gold.node is None:
            return Verdict.abstained(
                Reason.GOLD_UNREADABLE, gold=gold.text, why=gold.problem, method=found.method
            )
        try:
            node = parse(text)
        except Unreadable as error:
            if (spelling := same_spelling(gold.text, text)) is not None:
                return _equal(found, gold, spelling)
            if isinstance(gold.node, Text):
                return _wrong(Reason.DIFFERENT, found, gold, "text")
            return _wrong(Reason.UNREADABLE, found, gold, str(error))
        try:
            result = compare(
                gold.node,
                node,
                units=self.settings.units,
                min_digits=self.settings.min_digits,
            )
        except Unreadable as error:
            return _wrong(Reason.UNREADABLE, found, gold, str(error))
        if result.equal is None:
            return Open(found, gold, result)
        if result.equal:
            return _equal(found, gold, result.rule)
        if isinstance(node, Number) and isinstance(gold.node, Number):
            return _wrong(Reason.DIFFERENT, found, gold, result.rule)
        if (spelling := same_spelling(gold.text, text)) is not None:
            return _equal(found, gold, spelling)
        return _wrong(Reason.DIFFERENT, found, gold, result.rule)


def prove_task(left: Node, right: Node) -> str:
    """`symbolic.prove` for a worker; what is too large comes back as a value."""
    from .symbolic import prove

    try:
        return prove(left, right)
    except (TooLarge, MemoryError, RecursionError):
        return "too_large"


def _equal(found: Extraction, gold: Gold, rule: str) -> Verdict:
    detail = {"method": found.method, "rule": rule}
    return Verdict(1.0, Status.OK, Reason.EQUAL, found.text, gold.text, detail)


def _wrong(reason: Reason, found: Extraction, gold: Gold, rule: str) -> Verdict:
    detail = {"method": found.method, "rule": rule}
    return Verdict(0.0, Status.OK, reason, _short(found.text), gold.text, detail)


def _short(text: str | None) -> str | None:
    """Verdict rows stay readable: of a text beyond the bounds, its beginning."""
    return text if text is None or len(text) <= 4000 else text[:4000] + "..."


def _settled(entry: Open, outcomes: Sequence[Outcome]) -> Verdict:
    found, gold = entry.extraction, entry.gold
    kinds = [outcome.kind for outcome in outcomes]
    if "raised" in kinds or "lost" in kinds:
        first = next(outcome for outcome in outcomes if outcome.kind in ("raised", "lost"))
        reason = Reason.WORKER_LOST if first.kind == "lost" else Reason.VERIFIER_RAISED
        return Verdict.failed(reason, gold=gold.text, error=repr(first.value), method=found.method)
    if "too_slow" in kinds:
        return _wrong(Reason.TOO_SLOW, found, gold, "symbolic")
    if any(outcome.value == "too_large" for outcome in outcomes):
        return _wrong(Reason.TOO_LARGE, found, gold, "symbolic")
    if all(outcome.value in ("symbolic", "numeric") for outcome in outcomes):
        return _equal(
            found,
            gold,
            "numeric agreement" if any(o.value == "numeric" for o in outcomes) else "symbolic",
        )
    return _wrong(Reason.DIFFERENT, found, gold, "symbolic")


def explain(completion: str, *, gold: str | None, **settings: Any) -> Explanation:
    r"""A verdict with what led to it.

    >>> explain(r"\boxed{\frac12}", gold="0.5").rule
    'normal form'
    """
    judge = MathVerifier(**settings)
    verdict = judge([Item(Problem("0", "", gold), completion)])[0]
    found = judge.find(completion, judge.prepare(gold or ""))
    forms = [_form(found.text), _form(extract_gold(gold).text) if gold else None]
    rule = str(verdict.detail.get("rule", verdict.detail.get("why", verdict.reason)))
    return Explanation(verdict, found.text, found.method, forms[0], forms[1], rule)


def _form(text: str | None) -> str | None:
    if not text:
        return None
    try:
        return spelled(parse(text))
    except (Unreadable, TooLarge, RecursionError):
        return None
