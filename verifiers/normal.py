"""The normal form of an expression as a text, for people who ask why two answers are equal."""

from __future__ import annotations

from fractions import Fraction

from .canonical import canonical
from .limits import TooLarge, Unreadable
from .polynomial import ONE, Atom, Monomial, Polynomial, Ratio
from .reading import parse
from .tree import Measure

__all__ = ["normal_form"]

LONGEST_CHARS = 200


def normal_form(text: str) -> str | None:
    r"""The normal form that equality of expressions rests on; None where there is none to show.

    Lists, sets, words and measures have none; of functions that are kept as they stand, and of very
    long forms, nothing is shown.

    >>> normal_form(r"\frac{2}{\sqrt{8}}"), normal_form("0.5"), normal_form("(x+1)^2")
    ('1/2*sqrt(2)', '1/2', 'x^2 + 2*x + 1')
    """
    try:
        node = parse(text)
        if isinstance(node, Measure):
            return None
        shown = _quotient(canonical(node))
    except (Unreadable, TooLarge, RecursionError):
        return None
    return shown if shown is not None and len(shown) <= LONGEST_CHARS else None


def _quotient(ratio: Ratio) -> str | None:
    top, bottom = _sum(ratio.top), _sum(ratio.bottom)
    if top is None or bottom is None:
        return None
    return top if ratio.bottom == ONE else f"({top}) / ({bottom})"


def _sum(polynomial: Polynomial) -> str | None:
    """The terms, of the highest degree first."""
    terms = []
    order = sorted(polynomial.items(), key=lambda term: (-_degree(term[0]), repr(term[0])))
    for monomial, coefficient in order:
        factors = [_factor(atom, Fraction(power)) for atom, power in monomial]
        if None in factors:
            return None
        product = "*".join(factor for factor in factors if factor)
        size = abs(coefficient)
        shown = f"{size}*{product}" if product and size != 1 else product or str(size)
        terms.append(("-" if coefficient < 0 else "+", shown))
    if not terms:
        return "0"
    first = terms[0][1] if terms[0][0] == "+" else f"-{terms[0][1]}"
    return first + "".join(f" {sign} {shown}" for sign, shown in terms[1:])


def _degree(monomial: Monomial) -> Fraction:
    return sum((Fraction(power) for atom, power in monomial if atom[0] == "s"), Fraction(0))


def _factor(atom: Atom, power: Fraction) -> str | None:
    if atom[0] == "p":
        return f"sqrt({atom[1]})" if power == Fraction(1, 2) else f"{atom[1]}^({power})"
    names = {"s": str(atom[-1]), "ln": f"ln({atom[-1]})", "pi": "pi", "e": "e", "i": "i"}
    name = names.get(str(atom[0]))
    if name is None or (atom[0] == "ln" and not isinstance(atom[1], int)):
        return None
    if power == 1:
        return name
    return f"{name}^{power}" if power.denominator == 1 and power > 0 else f"{name}^({power})"
