r"""Inequalities that are linear in one variable, or in its absolute value, as intervals.

``-2x < 6`` is ``(-3, \infty)``, ``1 <= |z| <= 3/2`` is a union of two, ``x \ne 2`` leaves out one
point. Whatever else an inequality says (two variables, squares) is compared as it is written.
"""

from __future__ import annotations

from fractions import Fraction

from .canonical import canonical
from .evaluate import names
from .limits import TooLarge, Unreadable
from .literals import ZERO, negative
from .polynomial import ONE
from .structures import FLIPPED, is_name
from .tree import (
    Binary,
    Call,
    Constant,
    Group,
    Node,
    Number,
    Relation,
    Symbol,
    Union,
    is_inequality,
    substituted,
)

__all__ = ["inequality"]

INFINITY = Constant("oo")
MINUS_INFINITY = Binary("-", ZERO, INFINITY)


def inequality(relation: Relation) -> Node | None:
    """The set of reals for which an inequality holds, as intervals; None if it is not linear."""
    ops, parts = relation.ops, relation.parts
    if not is_inequality(relation):
        return None
    if ops[0] in (">", ">="):
        ops, parts = tuple(FLIPPED[op] for op in reversed(ops)), tuple(reversed(parts))
    if len(ops) == 2 and all(op in ("<", "<=") for op in ops):
        low, middle, high = parts
        below, above = (op == "<=" for op in ops)
        return _between(middle, low, high, below, above)
    if len(ops) != 1:
        return None
    left, right = parts
    if names(left) and names(right) and not (_isolated(left, right) or _isolated(right, left)):
        left, right = Binary("-", left, right), ZERO
    if ops == ("!=",):
        point = solved(left, right) or solved(right, left)
        line = Group("()", (MINUS_INFINITY, INFINITY))
        return Union("\\", (line, Group("{}", (point[0],)))) if point else None
    closed = ops[0] == "<="
    if _isolated(left, right) or (names(left) and not names(right)):
        return _between(left, MINUS_INFINITY, right, False, closed)
    return _between(right, left, INFINITY, closed, False)


def _isolated(side: Node, other: Node) -> bool:
    """Whether a side is one variable that the other side does not hold."""
    alone = isinstance(side, Symbol) and not isinstance(other, Symbol)
    return alone and side.name not in names(other)  # type: ignore[union-attr]


def _between(
    middle: Node, low: Node, high: Node, low_closed: bool, high_closed: bool
) -> Node | None:
    if isinstance(middle, Call) and middle.name == "abs":
        (inner,) = middle.args
        upper = _between(inner, low, high, low_closed, high_closed)
        if low == MINUS_INFINITY:
            low, low_closed = negative(high), high_closed
            return _between(inner, low, high, low_closed, high_closed)
        lower = _between(inner, negative(high), negative(low), high_closed, low_closed)
        return None if upper is None or lower is None else Union("|", (lower, upper))
    if is_name(middle) and not names(low) & names(high) & names(middle):
        return _interval(low, high, low_closed, high_closed)
    bottom, top = solved(middle, low), solved(middle, high)
    if bottom is None or top is None:
        return None
    if bottom[1] < 0:
        bottom, top, low_closed, high_closed = top, bottom, high_closed, low_closed
    return _interval(bottom[0], top[0], low_closed, high_closed)


def _interval(low: Node, high: Node, low_closed: bool, high_closed: bool) -> Group:
    brackets = ("[" if low_closed else "(") + ("]" if high_closed else ")")
    return Group(brackets, (low, high))


def solved(left: Node, right: Node) -> tuple[Node, Fraction] | None:
    """Where ``left`` equals ``right``, and the slope; None unless linear in one variable."""
    free = names(left)
    if len(free) != 1 or names(right):
        return None
    (name,) = free
    try:
        form = canonical(left)
    except (Unreadable, TooLarge):
        return None
    if form.bottom != ONE:
        return None
    slope = Fraction(0)
    for monomial, coefficient in form.top.items():
        if monomial == ((("s", name), 1),):
            slope = Fraction(coefficient)
        elif any(atom[0] not in ("pi", "e", "p", "ln") for atom, _ in monomial):
            return None
    if not slope:
        return None
    if right in (INFINITY, MINUS_INFINITY):
        up = (right == INFINITY) == (slope > 0)
        return (INFINITY if up else MINUS_INFINITY), slope
    offset = substituted(left, name, ZERO)
    return Binary("/", Binary("-", right, offset), Number(slope)), slope
