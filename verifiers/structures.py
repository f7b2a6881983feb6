"""Structures above expressions: relations, lists in any order, plus-minus."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from .canonical import canonical
from .comparison import Compare, Comparison, every, no, yes
from .evaluate import names
from .tree import (
    Binary,
    Call,
    Constant,
    Group,
    Measure,
    Node,
    Number,
    Percent,
    PlusMinus,
    Relation,
    Symbol,
    Text,
    Union,
    is_inequality,
)

__all__ = [
    "distinct",
    "filled",
    "is_name",
    "is_ratio",
    "matched",
    "quotient",
    "relation_of",
    "spread",
    "target",
]

MAX_FILLED = 200
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def target(relation: Relation) -> Node | None:
    """What "x = 5" or "f(x) = 2x" says of its left side; the last part of a chain of equals."""
    ops, parts = relation.ops, relation.parts
    if "~=" in ops[1:] or ops == ("~=",):
        parts = parts[: ops.index("~=") + 1]  # what is exact stands before the sign
        ops = ops[: len(parts) - 1]
        if not ops:
            return parts[0]
    if any(op not in ("=", "in") for op in ops):
        return parts[-1] if ops == ("~=",) else None
    first, last = parts[0], parts[-1]
    if is_name(first) or (not names(first) and not names(last)):
        return last
    return first if is_name(last) and len(parts) == 2 else None


def is_ratio(node: Node) -> bool:
    """Whether a node is a chain such as 2 : 3."""
    return isinstance(node, Relation) and node.ops[0] == ":"


def is_clock(relation: Relation) -> bool:
    """Whether a ratio may be a time, which is never up to a factor: 12:00, 3:30, 1:05."""
    parts = [part for part in relation.parts if isinstance(part, Number)]
    if len(parts) < len(relation.parts):
        return any(part.value == 0 for part in parts)
    if any(part.places == 0 or part.value == 0 for part in parts):
        return True
    return parts[0].value < 24 and all(10 <= part.value < 60 for part in parts[1:])


def quotient(left: Node, right: Node) -> tuple[Node, Node] | None:
    """A ratio of two numbers beside a number: 2:3 is 2/3."""
    ratio, other = (left, right) if is_ratio(left) else (right, left)
    if not isinstance(ratio, Relation) or isinstance(other, Relation) or len(ratio.parts) != 2:
        return None
    if is_clock(ratio):
        return None
    value = Binary("/", *ratio.parts)
    return (value, other) if ratio is left else (other, value)


def is_chain(relation: Relation) -> bool:
    """Whether a relation is a name and what it equals, step by step: z = 3 + 3 = 6."""
    return is_name(relation.parts[0]) and all(op == "=" for op in relation.ops)


def is_name(node: Node) -> bool:
    """Whether a left side only names something: x, f(x), A(x), words, (x, y)."""
    match node:
        case Symbol() | Call(_, _) if isinstance(node, Symbol) or node.name.startswith("fn:"):
            return True
        case Binary("*", Symbol(), Symbol()):
            return True
        case Group(_, items):
            return all(isinstance(item, Symbol) for item in items)
    if isinstance(node, Binary | Call):
        # |AB|, NO/BO: lengths of segments are named by points.
        own = names(node)
        return bool(own) and all(name[0].isupper() for name in own)
    return isinstance(node, Text) or is_ratio(node)


def relation_of(left: Relation, right: Relation, compare: Compare) -> Comparison:
    """Equations up to a factor, inequalities up to direction, assignments by their values."""
    if is_ratio(left) and is_ratio(right):
        if len(left.parts) != len(right.parts):
            return no("ratio")
        if not (is_clock(left) or is_clock(right)):
            pairs = [
                (Binary("*", left.parts[0], y), Binary("*", right.parts[0], x))
                for x, y in zip(left.parts[1:], right.parts[1:], strict=True)
            ]
            return every([compare(x, y) for x, y in pairs], "ratio up to a factor")
        pairs = zip(left.parts, right.parts, strict=True)
        return every([compare(x, y) for x, y in pairs], "ratio")
    if is_chain(left) and is_chain(right) and len(left.ops) + len(right.ops) > 2:
        a_value, b_value = target(left), target(right)
        if a_value is not None and b_value is not None:
            return every([compare(a_value, b_value)], "last part of the chain")
    if left.ops == right.ops == ("=",):
        a, b = _assigned(left), _assigned(right)
        if a is not None and b is not None:
            same = a[0] == b[0] or isinstance(a[0], Call) or isinstance(b[0], Call)
            if same or not (isinstance(a[0], Symbol) and isinstance(b[0], Symbol)):
                assigned = every([compare(a[1], b[1])], "assignment")
                if assigned.equal is not False:
                    return assigned
        return yes("same equation") if _proportional(left, right) else no("equation")
    if left.ops == right.ops and len(left.parts) == len(right.parts):
        direct = every(
            [compare(x, y) for x, y in zip(left.parts, right.parts, strict=True)],
            "relation, part by part",
        )
        if direct.equal is not False:
            return direct
    if len(left.ops) == len(right.ops) == 1 and is_inequality(left) and is_inequality(right):
        factor = _factor(left, right)
        if factor is not None:
            op = right.ops[0] if factor > 0 else FLIPPED[right.ops[0]]
            return yes("same inequality") if op == left.ops[0] else no("inequality")
    flipped = Relation(
        tuple(FLIPPED.get(op, op) for op in reversed(right.ops)), tuple(reversed(right.parts))
    )
    turns = all(op in FLIPPED for op in right.ops)  # a ratio read backwards is another one
    if turns and left.ops == flipped.ops and len(left.parts) == len(flipped.parts):
        pairs = zip(left.parts, flipped.parts, strict=True)
        return every([compare(x, y) for x, y in pairs], "relation, turned round")
    a_value, b_value = target(left), target(right)
    if a_value is not None and b_value is not None:
        return every([compare(a_value, b_value)], "assignment")
    return no("relation")


def _assigned(relation: Relation) -> tuple[Node, Node] | None:
    first, last = relation.parts
    if is_name(first) and first != last:
        return first, last
    return (last, first) if is_name(last) else None


def _proportional(left: Relation, right: Relation) -> bool:
    """Whether two equations say the same: their sides differ by the same, up to a factor."""
    return _factor(left, right) is not None


def _factor(left: Relation, right: Relation) -> Fraction | None:
    """The rational that makes the right difference of sides the left one; None when none does."""
    forms = []
    for relation in (left, right):
        first, last = relation.parts
        if not all(_is_expression(part) for part in (first, last)):
            return None
        forms.append(canonical(Binary("-", first, last)))
    a, b = forms
    if not a.top or not b.top:
        return Fraction(1) if not a.top and not b.top else None
    if a.bottom != b.bottom and left.ops != ("=",):
        return None  # the sign of what was multiplied with is not known
    key = next(iter(a.top))
    if a.top.keys() != b.top.keys():
        return None
    factor = Fraction(a.top[key], b.top[key])
    return factor if all(a.top[m] == factor * b.top[m] for m in a.top) else None


def _is_expression(node: Node) -> bool:
    return not isinstance(node, Group | Relation | Union | PlusMinus) and type(
        node
    ).__name__ not in ("Text", "Matrix")


def spread(node: Node) -> Group | None:
    """The values that a list, a tuple, a set or a plus-minus stands for; None for one value."""
    if isinstance(node, Group):
        if any(_has_plus_minus(item) for item in node.items):
            items = [value for item in node.items for value in _both(item)]
            return Group(node.brackets, tuple(items))
        return node
    if _has_plus_minus(node):
        return Group("", tuple(_both(node)))
    return None


def distinct(group: Group) -> Group:
    """A set, or a list of points, with each member once."""
    points = group.brackets == "" and all(isinstance(x, Group) for x in group.items)
    if not points and group.brackets != "{}":
        return group
    return Group(group.brackets, tuple(dict.fromkeys(group.items)))


def filled(group: Group) -> Group:
    """A list of whole numbers with the terms that its dots leave out: 1, 2, ..., 10."""
    items = group.items
    at = next((i for i, item in enumerate(items) if item == Constant("dots")), 0)
    values = [item.value for item in items if isinstance(item, Number) and item.base is None]
    if not 0 < at == len(items) - 2 or len(values) != len(items) - 1:
        return group
    step = values[1] - values[0] if at > 1 else Fraction(1)
    shown = all(b - a == step for a, b in pairwise(values[:at]))
    count = (values[-1] - values[0]) / step if step else Fraction(-1)
    if not shown or count.denominator != 1 or not 0 < count <= MAX_FILLED:
        return group
    terms = (Number(values[0] + i * step) for i in range(int(count) + 1))
    return Group(group.brackets, tuple(terms))


def _has_plus_minus(node: Node) -> bool:
    match node:
        case PlusMinus():
            return True
        case Binary(_, left, right):
            return _has_plus_minus(left) or _has_plus_minus(right)
        case Call(_, args):
            return any(_has_plus_minus(arg) for arg in args)
        case Measure(value, _) | Percent(value):
            return _has_plus_minus(value)
        case Relation(("=",), (_, right)):
            return _has_plus_minus(right)
    return False


def _both(node: Node) -> list[Node]:
    return [_choose(node, sign) for sign in (1, -1)] if _has_plus_minus(node) else [node]


def _choose(node: Node, sign: int) -> Node:
    match node:
        case PlusMinus(left, right, own):
            return Binary("+" if sign * own > 0 else "-", _choose(left, sign), _choose(right, sign))
        case Binary(op, left, right):
            return Binary(op, _choose(left, sign), _choose(right, sign))
        case Call(name, args):
            return Call(name, tuple(_choose(arg, sign) for arg in args))
        case Relation(ops, parts):
            return Relation(ops, tuple(_choose(part, sign) for part in parts))
    return node


def matched(left: Sequence[Node], right: Sequence[Node], compare: Compare, rule: str) -> Comparison:
    """Whether the values pair up in some order: each takes the first equal one, open ones last."""
    free = list(right)
    parts: list[Comparison] = []
    waiting: list[Node] = []
    for value in left:
        found = next((i for i, other in enumerate(free) if compare(value, other).equal), None)
        if found is None:
            waiting.append(value)
        else:
            free.pop(found)
    for value in waiting:
        results = [(i, compare(value, other)) for i, other in enumerate(free)]
        found_open = next(((i, r) for i, r in results if r.equal is not False), None)
        if found_open is None:
            return no(rule)
        free.pop(found_open[0])
        parts.append(found_open[1])
    return every(parts, rule) if not free else no(rule)
