"""Values of expressions to many digits, at points that the pair itself seeds: a fast refutation.

Two expressions whose values differ by far more than the working precision are different. Agreement
proves nothing here; that is for `stepmark.verifiers.symbolic`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .canonical import canonical
from .limits import MAX_BITS, TooLarge, Unreadable
from .tree import Binary, Call, Constant, Measure, Node, Number, Percent, Symbol

__all__ = ["approximate", "differ", "functions", "names", "value"]

DIGITS = 60
POINTS = 4
AGREE = 35
"""Values are taken as different when fewer than this many of the 60 digits agree."""


def names(node: Node) -> set[str]:
    """The free symbols of an expression."""
    match node:
        case Symbol(name):
            return {name}
        case Binary(_, left, right):
            return names(left) | names(right)
        case Call("lim", (body, variable, point)):
            return (names(body) - names(variable)) | names(point)
        case Call(("sum" | "product" | "integral"), (body, variable, low, high)):
            return (names(body) - names(variable)) | names(low) | names(high)
        case Call(name, args):
            own = {name} if name.startswith("fn:") else set()
            return own.union(*(names(arg) for arg in args))
        case Percent(inner) | Measure(inner, _):
            return names(inner)
    return set()


def differ(left: Node, right: Node, *, digits: int = DIGITS, points: int = POINTS) -> bool | None:
    """True: certainly different values. False: they agree at every point. None: no value there.

    Points are positive, drawn from a digest of the pair in either order: nobody can write an
    expression that vanishes at all of them, and the verdict is the same on every machine.
    """
    free = sorted(names(left) | names(right))
    seed = b"|".join(sorted((repr(left).encode(), repr(right).encode())))
    seen = 0
    for point in range(points if free else 1):
        apart = _apart(left, right, seed, free, point, digits)
        if apart:  # digits that cancelled could make it so: it must stand with three times as many
            apart = _apart(left, right, seed, free, point, 3 * digits)
        if apart is not None:
            seen += 1
        if apart:
            return True
    return False if seen else None


def _apart(
    left: Node, right: Node, seed: bytes, free: Sequence[str], point: int, digits: int
) -> bool | None:
    """Whether the values at a point differ in the leading digits; None without values."""
    import mpmath

    with mpmath.workdps(digits):
        at = {name: _draw(seed, name, point) for name in free}
        signs = {"abs", "conjugate"} & (functions(left) | functions(right))
        if signs:
            at = {
                name: _turned(number, point >> place % 2, "conjugate" in signs)
                for place, (name, number) in enumerate(at.items())
            }
        a, b = _value(left, at), _value(right, at)
        if a is None or b is None:
            return None
        size = max(abs(a), abs(b))
        return bool(size) and abs(a - b) > size * mpmath.mpf(10) ** (-AGREE * digits // DIGITS)


@lru_cache(maxsize=4096)
def approximate(node: Node) -> Fraction | None:
    """A rational within 1e-40 of a real constant; None for what is none."""
    try:
        exact = canonical(node).rational()
    except (Unreadable, TooLarge):
        return None
    if exact is not None or names(node):
        return exact
    import mpmath

    with mpmath.workdps(50):
        try:
            number = value(node, {})
        except (Unreadable, ZeroDivisionError, ValueError, OverflowError, TypeError):
            return None
        if not mpmath.isfinite(number) or mpmath.im(number) != 0:
            return None
        scaled = mpmath.nint(mpmath.re(number) * mpmath.mpf(10) ** 40)
        return Fraction(int(scaled), 10**40)


def functions(node: Node) -> set[str]:
    """The names of the functions in an expression."""
    match node:
        case Binary(_, left, right):
            return functions(left) | functions(right)
        case Call(name, args):
            return {name}.union(*(functions(arg) for arg in args))
        case Percent(inner) | Measure(inner, _):
            return functions(inner)
    return set()


def _turned(number: Any, bits: int, is_complex: bool) -> Any:
    """A number of either sign, or a complex one: bars and conjugates tell them apart."""
    import mpmath

    number = -number if bits & 1 else number
    return mpmath.mpc(number, number / 3) if is_complex else number


def _draw(seed: bytes, name: str, point: int) -> Any:
    import mpmath

    digest = hashlib.blake2b(seed + name.encode() + bytes([point]), digest_size=16).digest()
    return mpmath.mpf(int.from_bytes(digest, "big")) / mpmath.mpf(2) ** 127 + mpmath.mpf("0.3")


def _value(node: Node, at: Mapping[str, Any]) -> Any:
    import mpmath

    try:
        result = value(node, at)
        return result if mpmath.isfinite(result) else None
    except (ArithmeticError, ValueError, TypeError, Unreadable, mpmath.mp.NoConvergence):
        return None


def value(node: Node, at: Mapping[str, Any]) -> Any:
    """The value of an expression where its symbols have these values, in the working precision.

    Raises:
        Unreadable: the expression has no value of its own (words, unknown functions).
        TooLarge: a power or factorial beyond the bounds.
    """
    import mpmath

    match node:
        case Number(exact, _, None):
            return mpmath.mpf(exact.numerator) / exact.denominator
        case Number(exact, _, base):
            return mpmath.mpf(int(str(int(exact)), base or 10))
        case Symbol(name):
            return at[name]
        case Constant("pi"):
            return +mpmath.pi
        case Constant("e"):
            return +mpmath.e
        case Constant("i"):
            return mpmath.mpc(0, 1)
        case Percent(inner):
            return value(inner, at) / 100
        case Measure(inner, _):
            return value(inner, at)
        case Binary(op, left, right):
            return _binary(op, value(left, at), value(right, at))
        case Call(("lim" | "class" | "sum" | "product" | "integral"), _):
            raise Unreadable("a limit, a sum or a residue class has no value by points")
        case Call(name, args):
            return _call(name, [value(arg, at) for arg in args], at)
    raise Unreadable(f"a {type(node).__name__.lower()} has no value")


def _binary(op: str, a: Any, b: Any) -> Any:
    import mpmath

    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "/":
        return a / b
    if a == 0:
        return mpmath.mpf(0) if b != 0 else mpmath.mpf(1)
    if abs(b) * abs(mpmath.log(abs(a))) > MAX_BITS:
        raise TooLarge("a power")
    return _real_root(a, b) if not isinstance(a, mpmath.mpc) and a < 0 else a**b


def _real_root(a: Any, b: Any) -> Any:
    """A negative base: the real root when the exponent is a fraction with an odd bottom."""
    import mpmath

    for bottom in (3, 5, 7, 9):
        top = b * bottom
        if b != int(b) and abs(top - mpmath.nint(top)) < mpmath.mpf(10) ** (5 - mpmath.mp.dps):
            return (-1) ** int(mpmath.nint(top)) * abs(a) ** b
    return a**b


def _call(name: str, args: list[Any], at: Mapping[str, Any]) -> Any:
    import mpmath

    first = args[0]
    if name == "sqrt" and len(args) > 1:
        return _binary("^", first, 1 / args[1])
    if name in ("log", "ln") and len(args) > 1:
        return mpmath.log(first) / mpmath.log(args[1])
    if name.startswith("factorial") and abs(first) > 3000:
        raise TooLarge("a factorial")
    if name.startswith("fn:"):
        # An unknown function: some smooth function of its own, the same for the same name.
        return at[name] * mpmath.sin(sum(args) + at[name]) + 2
    known = _functions().get(name)
    if known is None:
        raise Unreadable(f"the function {name!r}")
    return known(*args)


def _functions() -> dict[str, Any]:
    import mpmath

    return {
        "sqrt": mpmath.sqrt, "cbrt": lambda x: _binary("^", x, mpmath.mpf(1) / 3),
        "exp": mpmath.exp,
        "ln": mpmath.log, "log": mpmath.log, "lg": mpmath.log10, "sin": mpmath.sin,
        "cos": mpmath.cos,
        "tan": mpmath.tan, "cot": mpmath.cot, "sec": mpmath.sec, "csc": mpmath.csc,
        "arcsin": mpmath.asin, "asin": mpmath.asin, "arccos": mpmath.acos, "acos": mpmath.acos,
        "arctan": mpmath.atan, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh,
        "tanh": mpmath.tanh, "abs": abs, "floor": mpmath.floor, "ceil": mpmath.ceil,
        "max": max, "min": min,
        "factorial": mpmath.factorial, "factorial2": mpmath.fac2, "conjugate": mpmath.conj,
        "binomial": mpmath.binomial,
    }  # fmt: skip
