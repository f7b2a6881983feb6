"""The verifier `numeric`: the answer's value is the gold's, within a tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

from stepmark.types import Item, Reason, Verdict

from .canonical import canonical
from .conversion import conversion
from .evaluate import approximate, names
from .extract import Extraction, extract
from .limits import TooLarge, Unreadable
from .policy import Policy
from .reading import parse
from .settings import NotNegative, PolicyName
from .shipped import ShippedVerifier, gold_of, shown
from .structures import target
from .tree import (
    Binary,
    Group,
    Measure,
    Node,
    Number,
    Percent,
    PlusMinus,
    Relation,
    Symbol,
    Text,
)
from .units import is_known_unit, normal_unit

__all__ = ["NumericVerifier", "Quantity", "quantity"]

PercentPolicy = Literal["gold", "share", "number"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number, as it was written: its value before a percent sign, and its unit."""

    value: Fraction
    """Exact for rationals; within 1e-40 for other real constants."""
    unit: str = ""
    percent: bool = False

    @property
    def share(self) -> Fraction:
        """The value with the percent sign read as hundredths."""
        return self.value / 100 if self.percent else self.value


@dataclass(frozen=True)
class NumericVerifier(ShippedVerifier):
    r"""Marks completions by the value of their answer: a number close enough to the gold's.

    With answer :math:`a` and gold :math:`g`, right is
    :math:`|a - g| \le \max(\texttt{abs\_tol}, \texttt{rel\_tol} \cdot |g|)`, in exact rationals.
    Closed forms are numbers too (:math:`\sqrt 2`, :math:`\pi/4`); free symbols, lists, words and
    complex numbers are not. A unit that one side lacks is dropped; different ones are converted
    where the extra ``[units]`` is installed, and are different where not.
    The tolerances hold for whole numbers as well: where 9999 must not pass for 10000, leave the
    default, or use ``math``.

    Args:
        rel_tol: largest difference, as a share of the gold's size.
        abs_tol: largest difference, in the gold's own unit.
        percent: ``gold``: the sign may be missing on one side where the gold is written with it
            or is beyond 1 in size (28 for 28 %, never 0.28 for 28); ``share``: 28 % is 0.28 and
            nothing else; ``number``: the sign is dropped, 28 % is 28.
        policy: which extraction rules are allowed: ``lenient``, ``strict``, ``boxed+phrase`` ...

    Raises:
        ConfigError: a setting has a value that is not allowed.

    >>> from stepmark.verifiers import verify
    >>> verify(r"\boxed{1.4142136}", gold=r"\sqrt{2}", verifier="numeric").correct
    True
    >>> verify("The answer is 9.8.", gold="9.81", verifier="numeric?rel_tol=1e-2").correct
    True
    >>> verify(r"\boxed{x+1}", gold="3", verifier="numeric").detail["rule"]
    'not a number: free symbols'
    """

    name: ClassVar[str] = "numeric"
    version: ClassVar[int] = 1

    rel_tol: NotNegative = 1e-6
    abs_tol: NotNegative = 0.0
    percent: PercentPolicy = "gold"
    policy: PolicyName = "lenient"

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        gold_text = gold_of(item)
        if gold_text is None or gold_text.text is None:
            return Verdict.abstained(Reason.GOLD_MISSING)
        try:
            gold = quantity(gold_text.text)
        except (Unreadable, TooLarge, RecursionError) as error:
            why = str(error) or "nested too deep"
            return Verdict.abstained(Reason.GOLD_UNREADABLE, gold=gold_text.text, why=why)
        found = extract(item.completion, policy=Policy.of(self.policy))
        if found.text is None:
            return Verdict.marked(0, Reason.NO_ANSWER, gold=gold_text.text, method=found.method)
        try:
            answer = quantity(found.text)
        except Unreadable as error:
            return _marked(Reason.UNREADABLE, found, gold_text.text, str(error))
        except (TooLarge, RecursionError) as error:
            why = str(error) or "nested too deep"
            return _marked(Reason.TOO_LARGE, found, gold_text.text, why)
        rule = self._rule(gold, answer)
        reason = Reason.DIFFERENT if rule in ("unit", "outside the tolerance") else Reason.EQUAL
        return _marked(reason, found, gold_text.text, rule)

    def _rule(self, gold: Quantity, answer: Quantity) -> str:
        factor = _factor(gold.unit, answer.unit) if gold.unit and answer.unit else Fraction(1)
        if factor is None:
            return "unit"
        answer = replace(answer, value=answer.value * factor)
        for wanted, seen in self._readings(gold, answer):
            if wanted == seen:
                return "same value"
            allowed = max(Fraction(repr(self.abs_tol)), Fraction(repr(self.rel_tol)) * abs(wanted))
            if abs(wanted - seen) <= allowed:
                return "within the tolerance"
        return "outside the tolerance"

    def _readings(self, gold: Quantity, answer: Quantity) -> list[tuple[Fraction, Fraction]]:
        """The pairs of values of which one must agree: more than one only around a percent sign."""
        as_written, as_shares = (gold.value, answer.value), (gold.share, answer.share)
        if self.percent == "number":
            return [as_written]
        if self.percent == "share" or gold.percent == answer.percent:
            return [as_shares]
        return [as_shares, as_written] if gold.percent or abs(gold.value) > 1 else [as_shares]


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    r"""The one number that a text stands for.

    Raises:
        Unreadable: the text is no number: words, a list, free symbols, a complex value.
        TooLarge: it is beyond the bounds.

    >>> quantity(r"x = 12\text{ cm}")
    Quantity(value=Fraction(12, 1), unit='cm', percent=False)
    """
    return _quantity(parse(text))


def _quantity(node: Node) -> Quantity:
    match node:
        case Measure(inner, unit):
            return Quantity(_quantity(inner).value, unit, isinstance(inner, Percent))
        case Percent(inner):
            return Quantity(_quantity(inner).value, percent=True)
        case Group(_, (inner,)):
            return _quantity(inner)
        case Group() | PlusMinus():
            raise Unreadable("not a number: several values")
        case Text():
            raise Unreadable("not a number: words")
        case Binary("*", Number() as count, Symbol(name)) if is_known_unit(normal_unit(name)):
            return Quantity(_value(count), normal_unit(name))  # "12 m": no product of a variable
        case Relation():
            inner = target(node)
            if inner is None or isinstance(inner, Relation):
                raise Unreadable("not a number: a relation")
            return _quantity(inner)
    return Quantity(_value(node))


def _value(node: Node) -> Fraction:
    if isinstance(node, Number) and node.base is None:
        return node.value
    try:
        exact = canonical(node).rational()
    except Unreadable as error:
        raise Unreadable(f"not a number: {error}") from error
    if exact is None and names(node):
        raise Unreadable("not a number: free symbols")
    if exact is None:
        exact = approximate(node)
    if exact is None:
        raise Unreadable("not a number: no real value")
    return exact


def _factor(gold: str, answer: str) -> Fraction | None:
    """What the answer is multiplied with to stand in the gold's unit; None if it never can."""
    if gold == answer or not (is_known_unit(gold) and is_known_unit(answer)):
        return Fraction(1)
    return conversion(answer, gold)


def _marked(reason: Reason, found: Extraction, gold: str, rule: str) -> Verdict:
    score = float(reason is Reason.EQUAL)
    return Verdict.marked(
        score, reason, extracted=shown(found.text), gold=gold, method=found.method, rule=rule
    )
