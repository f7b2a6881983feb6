r"""The normal form of an expression: a quotient of polynomials over independent atoms.

Decides most of what graders call sympy for, exactly and in microseconds: polynomials, rational
functions, surds, powers, complex numbers, logarithms of rationals, trigonometric values at
multiples of pi/6 and pi/4. Symbols stand for positive numbers where a root is taken of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from .limits import MAX_BITS, TooLarge, Unreadable
from .polynomial import IMAGINARY, ONE, Ratio, exact, factors
from .tree import Binary, Call, Constant, Measure, Node, Number, Percent, Symbol, substituted

__all__ = ["canonical"]

MAX_REPEATED = 60
"""Longest sum that is added term by term."""
HALF = Fraction(1, 2)
SINES = {Fraction(0): 0, Fraction(1, 6): 1, Fraction(1, 4): 2, Fraction(1, 3): 3, HALF: 4}
"""Sine of a multiple of pi, as twice the value squared: sin(pi/4) = sqrt(2)/2."""
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log10"}


@lru_cache(maxsize=4096)
def canonical(node: Node) -> Ratio:
    """The normal form of an expression.

    Raises:
        Unreadable: the node is no expression (words, a list), or divides by zero.
        TooLarge: the normal form would be beyond the bounds.
    """
    return form(node)


def form(node: Node) -> Ratio:
    """`canonical`, not remembered: parts of an expression are hashed once for each level above."""
    match node:
        case Number(value, _, base):
            return Ratio.of(value if base is None else _from_base(value, base))
        case Symbol(name):
            return Ratio.atom(("s", name))
        case Constant(("pi" | "e" | "i") as name):
            return Ratio.atom((name,))
        case Percent(value):
            return form(value).times(Ratio.of(Fraction(1, 100)))
        case Measure(value, _):
            return form(value)
        case Binary(op, left, right):
            return _binary(op, left, right)
        case Call(("sum" | "product") as name, (body, Symbol(variable), low, high)):
            return _repeated(name, body, variable, low, high)
        case Call(name, args):
            return _call(ALIASES.get(name, name), args)
    raise Unreadable(f"a {type(node).__name__.lower()} inside an expression")


def _from_base(value: Fraction, base: int) -> int:
    try:
        return int(str(int(value)), base)
    except ValueError as error:
        raise Unreadable(f"digits that base {base} does not have") from error


def _binary(op: str, left: Node, right: Node) -> Ratio:
    if op == "^":
        return _power(form(left), form(right))
    a, b = form(left), form(right)
    if op == "+":
        return a.add(b)
    if op == "-":
        return a.add(b, -1)
    return a.times(b) if op == "*" else a.times(b.inverse())


def _repeated(name: str, body: Node, variable: str, low: Node, high: Node) -> Ratio:
    """A sum or product over few whole numbers, term by term; longer ones stay as they are."""
    first, last = form(low).rational(), form(high).rational()
    if first is None or last is None or last - first > MAX_REPEATED or first.denominator != 1:
        return Ratio.atom(("call", name, variable, *(repr(part) for part in (body, low, high))))
    out = Ratio.of(0 if name == "sum" else 1)
    for value in range(int(first), math.floor(last) + 1):
        term = form(substituted(body, variable, Number(Fraction(value))))
        out = out.add(term) if name == "sum" else out.times(term)
    return out


def _power(base: Ratio, exponent: Ratio) -> Ratio:
    power = exponent.rational()
    if power is not None:
        if power.denominator == 1:
            if abs(power) > 10**6 and base.rational() not in (0, 1, -1):
                raise TooLarge("a power")
            return base.power(int(power))
        return root(base, power)
    value = base.rational()
    if base.equals(Ratio.atom(("e",))):
        return _exponential("exp", "e", exponent, 1)
    if value is not None and value > 0:
        out = Ratio.of(1)
        for number, sign in ((value.numerator, 1), (value.denominator, -1)):
            for prime, count in factors(number).items():
                out = out.times(_exponential("pow", prime, exponent, sign * count))
        return out
    return Ratio.atom(("call", "power", base.key(), exponent.key()))


def _exponential(kind: str, base: object, exponent: Ratio, times: int) -> Ratio:
    """``base ** (times * exponent)``, one factor for each term of the exponent."""
    if len(exponent.bottom) != 1:
        return Ratio.atom((kind, base, exponent.key()), times)
    ((bottom, divisor),) = exponent.bottom.items()
    out = Ratio.of(1)
    for monomial, coefficient in exponent.top.items():
        count = exact(Fraction(times * coefficient, divisor))
        if not monomial and not bottom:
            atom = (
                Ratio.atom((base,), count)
                if kind == "exp"
                else root(Ratio.of(int(str(base))), Fraction(count))
            )
        else:
            atom = Ratio.atom((kind, base, repr(monomial), repr(bottom)), count)
        out = out.times(atom)
    return out


def root(base: Ratio, power: Fraction) -> Ratio:
    """A rational power: exact for rationals and products of symbols, else its own atom."""
    value = base.rational()
    if value is not None:
        return _root_of_number(value, power)
    if len(base.top) == 1 and len(base.bottom) == 1:
        ((top, c),), ((bottom, d),) = base.top.items(), base.bottom.items()
        if Fraction(c, d) > 0 and all(e == 1 or power.denominator % 2 for _, e in (*top, *bottom)):
            out = _root_of_number(Fraction(c, d), power)
            for monomial, sign in ((top, 1), (bottom, -1)):
                for atom, exponent in monomial:
                    out = out.times(Ratio.atom(atom, sign * power * exponent))
            return out
    whole = math.floor(power)
    part = Ratio.atom(("call", "root", base.key(), power - whole))
    return base.power(whole).times(part) if whole else part


def _root_of_number(value: Fraction, power: Fraction) -> Ratio:
    if value == 0:
        return Ratio.of(0)
    out = Ratio.of(1)
    if value < 0:
        if power.denominator % 2:
            out = Ratio.of((-1) ** power.numerator)  # the real root
        elif power.denominator == 2:
            out = Ratio({((IMAGINARY, 1),): 1}, ONE).power(power.numerator % 4)
        else:
            return Ratio.atom(("call", "root", str(value), power))
    for number, sign in ((abs(value.numerator), 1), (value.denominator, -1)):
        for prime, count in factors(number).items():
            if prime.bit_length() * abs(count * power) > MAX_BITS:
                raise TooLarge("a power")
            out = out.times(Ratio.atom(("p", prime), sign * count * power))
    return out


def _call(name: str, args: Sequence[Node]) -> Ratio:
    values = [form(arg) for arg in args]
    first = values[0]
    if name in ("sqrt", "cbrt"):
        degree = values[1].rational() if len(values) > 1 else Fraction(3 if name == "cbrt" else 2)
        if degree is None or degree == 0:
            return _power(first, values[1].inverse())
        return root(first, 1 / degree)
    if name == "exp":
        return _power(Ratio.atom(("e",)), first)
    if name in ("log", "ln", "log10"):
        return _logarithm(name, values)
    if name in ("sin", "cos", "tan", "cot", "sec", "csc"):
        return _trigonometric(name, first)
    numbers = [value.rational() for value in values]
    if None not in numbers:
        exact = _whole_function(name, [n for n in numbers if n is not None])
        if exact is not None:
            return exact
    return Ratio.atom(("call", name, *(value.key() for value in values)))


def _whole_function(name: str, numbers: list[Fraction]) -> Ratio | None:
    """Functions of rationals that have rational values."""
    first = numbers[0]
    whole = [int(n) for n in numbers if n.denominator == 1]
    if name == "abs":
        return Ratio.of(abs(first))
    if name in ("floor", "ceil"):
        return Ratio.of(math.floor(first) if name == "floor" else math.ceil(first))
    if name in ("max", "min"):
        return Ratio.of(max(numbers) if name == "max" else min(numbers))
    if len(whole) != len(numbers) or not whole:
        return None
    if name == "factorial" and whole[0] >= 0:
        if whole[0] > 3_000:
            raise TooLarge(f"{str(first)[:20]}!")
        return Ratio.of(math.factorial(whole[0]))
    if name == "factorial2" and whole[0] >= -1:
        if whole[0] > 3_000:
            raise TooLarge(f"{str(first)[:20]}!!")
        return Ratio.of(math.prod(range(whole[0], 1, -2)))
    if name == "binomial" and len(whole) == 2 and 0 <= whole[1] <= whole[0]:
        if min(whole[1], whole[0] - whole[1]) * whole[0].bit_length() > MAX_BITS:
            raise TooLarge("a binomial coefficient")
        return Ratio.of(math.comb(*whole))
    if name in ("gcd", "lcm"):
        return Ratio.of(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
    return None


def _logarithm(name: str, values: Sequence[Ratio]) -> Ratio:
    top = _natural(values[0])
    if name == "log10":
        return top.times(_natural(Ratio.of(10)).inverse())
    return top.times(_natural(values[1]).inverse()) if len(values) > 1 else top


def _natural(value: Ratio) -> Ratio:
    """The natural logarithm: of a positive rational, a sum of logarithms of primes."""
    number = value.rational()
    if number is not None and number > 0:
        out = Ratio.of(0)
        for part, sign in ((number.numerator, 1), (number.denominator, -1)):
            for prime, count in factors(part).items():
                out = out.add(Ratio.atom(("ln", prime)).times(Ratio.of(sign * count)))
        return out
    if number is not None and number <= 0:
        raise Unreadable("the logarithm of a number that is not positive")
    if len(value.top) == 1 and value.bottom == ONE:
        ((monomial, coefficient),) = value.top.items()
        if coefficient > 0 and len(monomial) == 1 and monomial[0][0][0] in ("e", "p"):
            atom, exponent = monomial[0]
            inner = Ratio.of(1) if atom[0] == "e" else Ratio.atom(("ln", atom[1]))
            return _natural(Ratio.of(coefficient)).add(inner.times(Ratio.of(exponent)))
    return Ratio.atom(("call", "ln", value.key()))


def _trigonometric(name: str, angle: Ratio) -> Ratio:
    if name in ("cot", "sec", "csc"):
        return _trigonometric({"cot": "tan", "sec": "cos", "csc": "sin"}[name], angle).inverse()
    if name == "tan":
        return _trigonometric("sin", angle).times(_trigonometric("cos", angle).inverse())
    turns = angle.times(Ratio.atom(("pi",)).inverse()).rational()
    if turns is not None:
        turns = (turns + (HALF if name == "cos" else 0)) % 2
        sign = -1 if turns >= 1 else 1
        turns %= 1
        turns = min(turns, 1 - turns)
        if turns in SINES:
            return root(Ratio.of(SINES[turns]), HALF).times(Ratio.of(Fraction(sign, 2)))
    return Ratio.atom(("call", name, angle.key()))
