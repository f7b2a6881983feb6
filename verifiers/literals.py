r"""Values as they are written: digits, decimals with a power of ten, degrees, signs."""

from __future__ import annotations

import re
from fractions import Fraction

from .tree import Binary, Call, Constant, Measure, Node, Number, Symbol

__all__ = ["ZERO", "barred", "degrees", "going_on", "negative", "number", "residue", "scaled"]

ZERO = Number(Fraction(0))


def number(digits: str, exponent: int = 0) -> Number:
    """The exact value of digits with at most one point.

    >>> number("0.50")
    Number(value=Fraction(1, 2), places=2, base=None)
    """
    if not exponent and digits.isdecimal():
        return Number(Fraction(int(digits)))
    whole, point, places = digits.partition(".")
    value = Fraction(int(whole + places or "0"), 10 ** len(places))
    shown = len(places) - exponent if point else None
    return Number(value * Fraction(10) ** exponent if exponent else value, shown)


_CYCLE = re.compile(r"(\d*?)(?:(\d)\2{2,}|(\d{2,12}?)\3+)$")


def going_on(digits: str) -> Number:
    """A decimal that goes on after its digits: ``0.333...`` is a third, ``1.414...`` three places.

    A digit that ends it three times, or a block that ends it twice, is taken as the cycle.

    >>> going_on("0.1666").value, going_on("0.2727").value, going_on("1.414").places
    (Fraction(1, 6), Fraction(3, 11), 3)
    """
    whole, _, places = digits.partition(".")
    match = _CYCLE.fullmatch(places)
    if match is None:
        return number(digits)
    fixed, cycle = match.group(1), match.group(2) or match.group(3)
    bottom = 10 ** len(fixed) * (10 ** len(cycle) - 1)
    top = int((whole or "0") + fixed + cycle) - int((whole or "0") + fixed)
    return Number(Fraction(top, bottom))


def scaled(operator: str, left: Node, right: Node) -> Node:
    r"""A product or quotient; ``2.5 \times 10^{-3}`` is a decimal that shows two digits."""
    match left, right:
        case (
            Number(value, int(places), None),
            Binary("^", Number(base, None, None), Number(k, None, None)),
        ) if base == 10:
            if operator == "*" and k.denominator == 1 and abs(k) <= 300:
                return Number(value * Fraction(10) ** int(k), places - int(k))
    return Binary(operator, left, right)


def barred(value: Node) -> Node:
    r"""``\\overline{AB}`` is the segment AB; ``\\overline{z}`` is the conjugate of z."""
    match value:
        case Binary("*", Symbol(a), Symbol(b)) if a.isupper() and b.isupper():
            return value
    return Call("conjugate", (value,))


def residue(left: Node, right: Node) -> Node:
    r"""``17 \bmod 5`` is a number; ``x \bmod 5`` and ``2 mod 5`` as a class stay as they are.

    >>> residue(number("17"), number("5"))
    Number(value=Fraction(2, 1), places=None, base=None)
    """
    match left, right:
        case Number(a, None, None), Number(m, None, None) if m > 0 and a >= m:
            return Number(a % m)
    return Call("class", (left, right))


def degrees(value: Node) -> Node:
    """An angle in radians."""
    return Binary("/", Binary("*", value, Constant("pi")), Number(Fraction(180)))


def negative(value: Node) -> Node:
    """Minus a value; of a number, the negative number."""
    if isinstance(value, Number) and value.base is None:
        return Number(-value.value, value.places)
    if isinstance(value, Measure):
        return Measure(negative(value.value), value.unit)
    return Binary("-", ZERO, value)
