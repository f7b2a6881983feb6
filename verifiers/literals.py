r"""Values as they are written: digits, decimals with a power of ten, degrees, signs."""

from __future__ import annotations

from fractions import Fraction

from .tree import Binary, Constant, Node, Number

__all__ = ["ZERO", "degrees", "negative", "number", "scaled"]

ZERO = Number(Fraction(0))


def number(digits: str, exponent: int = 0) -> Number:
    """The exact value of digits with at most one point.

    >>> number("0.50")
    Number(value=Fraction(1, 2), places=2, base=None)
    """
    whole, point, places = digits.partition(".")
    value = Fraction(int(whole + places or "0"), 10 ** len(places))
    shown = len(places) - exponent if point else None
    return Number(value * Fraction(10) ** exponent, shown)


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


def degrees(value: Node) -> Node:
    """An angle in radians."""
    return Binary("/", Binary("*", value, Constant("pi")), Number(Fraction(180)))


def negative(value: Node) -> Node:
    """Minus a value; of a number, the negative number."""
    if isinstance(value, Number) and value.base is None:
        return Number(-value.value, value.places)
    return Binary("-", ZERO, value)
