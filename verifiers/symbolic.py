"""What only sympy can settle, inside a worker: trees come in as data, never as source text."""

from __future__ import annotations

from typing import Any

from .evaluate import differ, functions
from .limits import TooLarge, Unreadable
from .tree import Binary, Call, Constant, Measure, Node, Number, Percent, Symbol

__all__ = ["prove", "to_sympy"]

NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log", "ceil": "ceiling",
         "abs": "Abs",          "max": "Max", "min": "Min"}  # fmt: skip


def prove(left: Node, right: Node) -> str:
    """How two expressions are equal, or "different".

    "symbolic": sympy shows the difference to be zero. "numeric": it cannot tell, and the two agree
    to 175 of 300 digits at eight points; the stated criterion for a positive.

    Runs in a worker under a deadline: `simplify` has no bound of its own.
    """
    import sympy

    try:
        positive = not {"abs", "conjugate"} & (functions(left) | functions(right))
        difference = to_sympy(left, positive) - to_sympy(right, positive)
        if sympy.expand(difference) == 0 or sympy.simplify(difference) == 0:
            return "symbolic"
    except (
        Unreadable,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        NotImplementedError,
    ):
        # sympy raises these from the depths of simplify; the numeric criterion decides alone.
        pass
    except (RecursionError, MemoryError) as error:
        raise TooLarge(type(error).__name__) from error
    return "numeric" if differ(left, right, digits=300, points=8) is False else "different"


def to_sympy(node: Node, positive: bool = True) -> Any:
    """The sympy expression of a tree; symbols are positive unless told otherwise.

    Raises:
        Unreadable: the tree holds something that is no expression.
    """
    import sympy

    match node:
        case Number(value, _, base):
            if base is not None:
                return sympy.Integer(int(str(int(value)), base))
            return sympy.Rational(value.numerator, value.denominator)
        case Symbol(name):
            return sympy.Symbol(name, positive=True if positive else None)
        case Constant("pi"):
            return sympy.pi
        case Constant("e"):
            return sympy.E
        case Constant("i"):
            return sympy.I
        case Percent(inner):
            return to_sympy(inner, positive) / 100
        case Measure(inner, _):
            return to_sympy(inner, positive)
        case Binary(op, left, right):
            a, b = to_sympy(left, positive), to_sympy(right, positive)
            return {
                "+": a.__add__,
                "-": a.__sub__,
                "*": a.__mul__,
                "/": a.__truediv__,
                "^": a.__pow__,
            }[op](b)
        case Call(name, args):
            return _call(name, [to_sympy(arg, positive) for arg in args])
    raise Unreadable(f"a {type(node).__name__.lower()} is no expression")


def _call(name: str, args: list[Any]) -> Any:
    import sympy

    if name == "lim":
        return sympy.limit(*args)
    if name in ("sum", "product", "integral"):
        body, *bounds = args
        kinds = {"sum": sympy.Sum, "product": sympy.Product, "integral": sympy.Integral}
        return kinds[name](body, tuple(bounds)).doit()
    if name == "sqrt" and len(args) > 1:
        return sympy.real_root(args[0], args[1])
    if name == "lg":
        return sympy.log(args[0], 10)
    if name == "cbrt":
        return sympy.real_root(args[0], 3)
    if name.startswith("fn:"):
        return sympy.Function(name[3:])(*args)
    return getattr(sympy, NAMES.get(name, name))(*args)
