r"""Exact arithmetic on sums of monomials, in Python integers, without sympy.

A polynomial maps monomials to rational coefficients. A monomial is a sorted tuple of (atom,
exponent); exponents are rational. Atoms are symbols, pi, i, e, primes under a root, logarithms
and functions of other normal forms. Primes under roots are reduced to exponents in (0, 1): such
radicals are linearly independent over the rationals (Besicovitch 1940), so two normal forms over
symbols, pi and radicals are equal exactly when they look equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from .limits import MAX_BITS, MAX_TERMS, TooLarge, Unreadable

__all__ = ["Atom", "Monomial", "Polynomial", "Ratio", "factors"]

Atom = tuple[object, ...]
Rational = int | Fraction
"""Whole numbers are ints, which is many times faster; a `Fraction` here is never whole."""
Monomial = tuple[tuple[Atom, Rational], ...]
Polynomial = dict[Monomial, Rational]

ONE: Polynomial = {(): 1}
IMAGINARY: Atom = ("i",)
SMALL = 2**64
FREE = frozenset(("s", "pi", "i", "p"))
"""Kinds of atoms that satisfy no relation but those the arithmetic knows."""


def exact(value: Rational) -> Rational:
    """The value, whole numbers as ints."""
    return value if type(value) is int or value.denominator != 1 else value.numerator


def checked(value: Rational) -> Rational:
    """The value, whole numbers as ints, unless it is larger than the bounds."""
    if type(value) is int and -SMALL < value < SMALL:
        return value
    value = exact(value)
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise TooLarge("a number of more than the allowed bits")
    return value


def factors(n: int) -> dict[int, int]:
    """The prime factors of a positive integer; a large cofactor is left whole.

    >>> factors(72)
    {2: 3, 3: 2}
    """
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= n and divisor < 2000:
        while n % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            n //= divisor
        divisor += 1 if divisor == 2 else 2
    if n > 1:
        found[n] = found.get(n, 0) + 1
    return found


def add(left: Polynomial, right: Polynomial, factor: int = 1) -> Polynomial:
    """``left + factor * right``."""
    out = dict(left)
    for monomial, coefficient in right.items():
        total = out.get(monomial, 0) + factor * coefficient
        if total:
            out[monomial] = checked(total)
        else:
            out.pop(monomial, None)
    return out


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product, with powers of i and of radicals reduced."""
    if left == ONE or right == ONE:
        return left if right == ONE else right
    if len(left) * len(right) > 20 * MAX_TERMS:
        raise TooLarge("a product of too many terms")
    out: Polynomial = {}
    for m, c in left.items():
        for n, d in right.items():
            monomial, extra = join(m, n)
            total = out.get(monomial, 0) + c * d * extra
            if total:
                out[monomial] = checked(total)
            else:
                out.pop(monomial, None)
    if len(out) > MAX_TERMS:
        raise TooLarge(f"more than {MAX_TERMS} terms")
    return out


def join(left: Monomial, right: Monomial) -> tuple[Monomial, Rational]:
    """The product of two monomials and the rational factor that comes out of it."""
    if not left or not right:
        return left or right, 1
    return reduced((*left, *right))


def reduced(pairs: Monomial) -> tuple[Monomial, Rational]:
    """A monomial with every atom once, i and radicals reduced, and the factor that comes out."""
    powers: dict[Atom, Rational] = {}
    extra: Rational = 1
    for atom, exponent in pairs:
        powers[atom] = exact(powers[atom] + exponent) if atom in powers else exponent
    for atom, exponent in list(powers.items()):
        if exponent == 0:
            del powers[atom]
        elif atom == IMAGINARY and exponent >= 2:
            extra = -extra
            del powers[atom]
        elif atom[0] == "p" and not 0 < exponent < 1:
            whole = exponent.numerator // exponent.denominator
            prime = int(atom[1])  # type: ignore[call-overload]
            extra = extra * prime**whole if whole >= 0 else Fraction(extra) / prime**-whole
            if exponent == whole:
                del powers[atom]
            else:
                powers[atom] = exponent - whole
    if len(powers) < 2:
        return tuple(powers.items()), exact(extra)
    return tuple(sorted(powers.items(), key=_order)), exact(extra)


def _order(pair: tuple[Atom, Rational]) -> str:
    return repr(pair[0])


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of polynomials; equality is decided by cross-multiplication."""

    top: Polynomial
    bottom: Polynomial

    @classmethod
    def of(cls, value: Rational) -> Ratio:
        """A rational number."""
        value = checked(value)
        return cls({(): value} if value else {}, ONE)

    @classmethod
    def atom(cls, atom: Atom, exponent: Rational = 1) -> Ratio:
        """One atom under a rational exponent."""
        power = exact(exponent)
        if power < 0 and atom[0] != "p":
            return cls(ONE, {((atom, -power),): 1})
        monomial, extra = reduced(((atom, power),))
        return cls({monomial: extra}, ONE)

    def rational(self) -> Fraction | None:
        """The value when it is a rational number."""
        if not self.top:
            return Fraction(0)
        if len(self.top) != 1 or len(self.bottom) != 1:
            return None
        (m, c), (n, d) = *self.top.items(), *self.bottom.items()
        return Fraction(c, d) if m == n else None

    def add(self, other: Ratio, sign: int = 1) -> Ratio:
        """The sum or difference."""
        if self.bottom == other.bottom:
            return Ratio(add(self.top, other.top, sign), self.bottom)
        left, right = multiply(self.top, other.bottom), multiply(other.top, self.bottom)
        return Ratio(add(left, right, sign), multiply(self.bottom, other.bottom))

    def times(self, other: Ratio) -> Ratio:
        """The product."""
        top, bottom = multiply(self.top, other.top), multiply(self.bottom, other.bottom)
        return Ratio(top, bottom) if bottom == ONE else Ratio(top, bottom).simple()

    def inverse(self) -> Ratio:
        """One over it.

        Raises:
            Unreadable: it is zero.
        """
        if not self.top:
            raise Unreadable("a division by zero")
        return Ratio(self.bottom, self.top).simple()

    def simple(self) -> Ratio:
        """The same with a rational or single-prime-radical bottom moved to the top."""
        if len(self.bottom) != 1:
            return self
        ((monomial, coefficient),) = self.bottom.items()
        if any(atom[0] not in ("p", "i") for atom, _ in monomial):
            return self
        turned: Monomial = ()
        extra: Rational = exact(Fraction(1, coefficient))
        for atom, power in monomial:
            # 1/i is -i; 1/sqrt(p) is sqrt(p)/p, which `join` makes of the negative exponent.
            one: Monomial = ((atom, power if atom == IMAGINARY else -power),)
            turned, factor = join(turned, one) if turned else reduced(one)
            extra *= -factor if atom == IMAGINARY else factor
        return Ratio(multiply(self.top, {turned: exact(extra)}), ONE)

    def power(self, exponent: int) -> Ratio:
        """A whole power, by squaring; bounded before it is built.

        Raises:
            TooLarge: the result would be beyond the bounds.
        """
        if exponent < 0:
            return self.inverse().power(-exponent)
        bits = max((_bits(c) for p in (self.top, self.bottom) for c in p.values()), default=1)
        terms = max(len(self.top), len(self.bottom))
        if bits * exponent > MAX_BITS or (terms > 1 and exponent * terms > MAX_TERMS):
            raise TooLarge("a power")
        out, base = Ratio.of(1), self
        while exponent:
            if exponent & 1:
                out = out.times(base)
            exponent >>= 1
            if exponent:
                base = base.times(base)
        return out

    def equals(self, other: Ratio) -> bool:
        """Whether the two normal forms are the same quotient."""
        if self.bottom == other.bottom:
            return self.top == other.top
        return multiply(self.top, other.bottom) == multiply(other.top, self.bottom)

    def is_free(self) -> bool:
        """Whether only independent atoms occur: then forms that differ are different values."""
        kinds = {atom[0] for p in (self.top, self.bottom) for m in p for atom, _ in m}
        return kinds <= FREE

    def key(self) -> str:
        """A text that is equal for equal forms (of quotients in lowest terms by monomials only)."""
        return f"{_text(self.top)}/{_text(self.bottom)}"


def _bits(value: Rational) -> int:
    if abs(value) == 1:
        return 0
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _text(polynomial: Polynomial) -> str:
    return ";".join(sorted(f"{c}*{m!r}" for m, c in polynomial.items()))
