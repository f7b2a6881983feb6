r"""Sets of reals: intervals, unions, differences, inequalities in one variable, finite sets.

Where every end has a value, a set becomes its disjoint pieces in order: then
``(0,36) \setminus \{9\}`` is ``(0,9) \cup (9,36)``, and ``-2x < 6`` is ``(-3, \infty)``. Ends are
ordered by their values and compared as expressions. Sets with letters in their ends are compared
part by part, as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .comparison import Compare, Comparison, every, no
from .evaluate import approximate
from .inequalities import inequality
from .literals import ZERO
from .structures import matched
from .tree import Binary, Constant, Group, Node, Relation, Symbol, Text, Union, is_inequality

__all__ = ["compare_sets", "is_set", "pieces"]

INFINITY = Constant("oo")
MINUS_INFINITY = Binary("-", ZERO, INFINITY)
CLOSE = Fraction(1, 10**35)
"""Ends nearer than this are one end: values are known to 1e-40."""
ALL_REALS = frozenset(
    ["all real numbers", "all reals", "real numbers", "the real numbers", "reals", "the reals"]
)
MAX_PIECES = 50


class Piece(NamedTuple):
    """An interval, or a point: then both ends are the same and closed."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


LINE = (Piece(MINUS_INFINITY, INFINITY, False, False),)


def is_set(node: Node) -> bool:
    """Whether a node can only be a set of reals: by brackets, union, inequality or infinity."""
    match node:
        case Union():
            return True
        case Group(("(]" | "[)"), items):
            return len(items) == 2
        case Group(("()" | "[]"), items):
            return len(items) == 2 and any(_infinite(item) for item in items)
        case Group("", items):
            return len(items) > 1 and all(is_inequality(item) for item in items)
        case Text(words):
            return words in ALL_REALS
        case Relation(ops, _):
            finite = isinstance(node.parts[-1], Group) and node.parts[-1].brackets == "{}"
            return (ops == ("in",) and not finite) or is_inequality(node)
    return False


def _infinite(node: Node) -> bool:
    return INFINITY in (node, getattr(node, "right", None))


def compare_sets(left: Node, right: Node, compare: Compare) -> Comparison | None:
    """Whether two nodes, at least one a set, are the same set of reals.

    None of two relations that describe no such set, such as inequalities in two variables.
    """
    a, b = pieces(left), pieces(right)
    if a is None or b is None:
        if isinstance(left, Relation) and isinstance(right, Relation) and "in" not in left.ops:
            return None
        return _as_written(left, right, compare)
    if len(a) != len(b):
        return no("intervals")
    parts = []
    for one, other in zip(a, b, strict=True):
        if one[2:] != other[2:]:
            return no("interval ends")
        parts += [_ends(one.low, other.low, compare), _ends(one.high, other.high, compare)]
    return every(parts, "intervals")


def _ends(left: Node, right: Node, compare: Compare) -> Comparison:
    infinite = [_sign(node) for node in (left, right)]
    if any(infinite):
        return every([], "infinity") if infinite[0] == infinite[1] else no("infinity")
    return compare(left, right)


def pieces(node: Node) -> tuple[Piece, ...] | None:
    """The disjoint intervals of a set in order; None when an end has no value."""
    found = _raw(node)
    return None if found is None else _sorted(found)


def _raw(node: Node) -> tuple[Piece, ...] | None:
    match node:
        case Relation(("in",), (_, right)):
            return _raw(right)
        case Relation(("=",), (Symbol(), point)):
            return (Piece(point, point, True, True),)
        case Relation():
            solved = inequality(node)
            return None if solved is None else _raw(solved)
        case Union(op, parts):
            return _joined(op, [pieces(part) for part in parts])
        case Group(("()" | "[]" | "(]" | "[)") as brackets, (low, high)):
            a, b = value(low), value(high)
            if a is None or b is None or a > b or (a == b and brackets != "[]"):
                return None
            return (Piece(low, high, brackets[0] == "[", brackets[1] == "]"),)
        case Group("{}", items):
            return tuple(Piece(item, item, True, True) for item in items)
        case Group("", items):
            return _conditions([pieces(item) for item in items])
        case Constant("emptyset"):
            return ()
        case Symbol("R") | Symbol("reals"):
            return LINE
        case Text(words) if words in ALL_REALS:
            return LINE
    return None


def _joined(op: str, sets: Sequence[tuple[Piece, ...] | None]) -> tuple[Piece, ...] | None:
    known = [one for one in sets if one is not None]
    if len(known) != len(sets) or sum(map(len, known)) > MAX_PIECES:
        return None
    total = known[0]
    for other in known[1:]:
        if op == "|":
            total = (*total, *other)
        else:
            total = _common(total, other if op == "&" else _outside(other))
    return total


def _conditions(sets: Sequence[tuple[Piece, ...] | None]) -> tuple[Piece, ...] | None:
    """``x < 1 or x > 3``, ``x > 1 and x < 3``: people write "and" and a comma for either.

    Conditions that exclude each other are alternatives; conditions that hold everywhere together
    are limits of one interval; others are not understood.
    """
    both, either = _joined("&", sets), _joined("|", sets)
    if both is None or either is None:
        return None
    if not _sorted(both):
        return either
    return both if _sorted(either) == LINE else None


def _sorted(found: Sequence[Piece]) -> tuple[Piece, ...] | None:
    """Pieces in order, with those that touch made one; None when an end has no value."""
    valued = []
    for piece in found:
        low, high = value(piece.low), value(piece.high)
        if low is None or high is None:
            return None
        if low < high - CLOSE or (abs(high - low) <= CLOSE and piece[2:] == (True, True)):
            low_closed = piece.low_closed and not _sign(piece.low)
            high_closed = piece.high_closed and not _sign(piece.high)
            valued.append((low, Piece(piece.low, piece.high, low_closed, high_closed)))
    valued.sort(key=lambda pair: (pair[0], not pair[1].low_closed))
    out: list[Piece] = []
    for low, piece in valued:
        if out:
            last = out[-1]
            end = value(last.high)
            touch = end is not None and (
                low < end - CLOSE
                or (abs(low - end) <= CLOSE and (last.high_closed or piece.low_closed))
            )
            if touch:
                out[-1] = _longer(last, piece)
                continue
        out.append(piece)
    return tuple(out)


def _longer(first: Piece, second: Piece) -> Piece:
    a, b = value(first.high) or Fraction(0), value(second.high) or Fraction(0)
    if abs(a - b) <= CLOSE:
        return first._replace(high_closed=first.high_closed or second.high_closed)
    longer = first if a > b else second
    return first._replace(high=longer.high, high_closed=longer.high_closed)


def _outside(found: Sequence[Piece]) -> tuple[Piece, ...]:
    """The rest of the line; pieces are disjoint and in order."""
    out = []
    low, closed = MINUS_INFINITY, False
    for piece in found:
        out.append(Piece(low, piece.low, closed, not piece.low_closed))
        low, closed = piece.high, not piece.high_closed
    return (*out, Piece(low, INFINITY, closed, False))


def _common(left: Sequence[Piece], right: Sequence[Piece]) -> tuple[Piece, ...]:
    out = []
    for a in left:
        for b in right:
            low, low_closed = _inner(a.low, a.low_closed, b.low, b.low_closed, 1)
            high, high_closed = _inner(a.high, a.high_closed, b.high, b.high_closed, -1)
            out.append(Piece(low, high, low_closed, high_closed))
    return tuple(out)


def _inner(a: Node, a_closed: bool, b: Node, b_closed: bool, sign: int) -> tuple[Node, bool]:
    x, y = value(a) or Fraction(0), value(b) or Fraction(0)
    if abs(x - y) <= CLOSE:
        return a, a_closed and b_closed
    return (a, a_closed) if (x - y) * sign > 0 else (b, b_closed)


def _sign(node: Node) -> int:
    """1 for infinity, -1 for minus infinity, 0 for what is finite."""
    if node == INFINITY:
        return 1
    match node:
        case Binary("-", left, right) if right == INFINITY and left == ZERO:
            return -1
        case Binary("+", left, right) if right == INFINITY and left == ZERO:
            return 1
    return 0


def value(node: Node) -> Fraction | None:
    """The value of an end; infinity is beyond every number that an answer has."""
    sign = _sign(node)
    return Fraction(sign * 10**400) if sign else approximate(node)


def _as_written(left: Node, right: Node, compare: Compare) -> Comparison:
    """Sets with letters in their ends: same parts in any order."""
    a, b = _plain(left), _plain(right)
    if a is None or b is None:
        return no("a set against something else")
    if isinstance(a, Union) and isinstance(b, Union):
        if a.op != b.op or len(a.parts) != len(b.parts):
            return no("union")
        if a.op == "\\":
            return every([compare(x, y) for x, y in zip(a.parts, b.parts, strict=True)], "union")
        return matched(a.parts, b.parts, compare, "union")
    if isinstance(a, Group) and isinstance(b, Group) and len(a.items) == len(b.items):
        if a.brackets != b.brackets:
            return no("interval ends")
        ends = zip(a.items, b.items, strict=True)
        return every([_ends(x, y, compare) for x, y in ends], "interval")
    return every([compare(a, b)], "set") if a is not left or b is not right else no("set")


def _plain(node: Node) -> Node | None:
    match node:
        case Relation(("in",), (_, right)):
            return _plain(right)
        case Relation():
            return inequality(node)
        case Union() | Symbol() | Group(("()" | "[]" | "(]" | "[)" | "{}"), _):
            return node
    return None
