"""Structures above expressions: relations, lists in any order, plus-minus."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .canonical import canonical
from .comparison import Compare, Comparison, every, no, yes
from .evaluate import names
from .tree import (
    Binary,
    Call,
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
)

__all__ = [
    "distinct",
    "is_name",
    "is_ratio",
    "matched",
    "quotient",
    "relation_of",
    "spread",
    "target",
]

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
    """Whether a ratio may be a time, which is never up to a factor: 12:00, 3:30."""
    _, *rest = relation.parts
    return any(
        isinstance(part, Number) and (part.value == 0 or 10 <= part.value < 60) for part in rest
    ) or not all(isinstance(part, Number) and part.value for part in relation.parts)


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
                return every([compare(a[1], b[1])], "assignment")
        return yes("same equation") if _proportional(left, right) else no("equation")
    if left.ops == right.ops and len(left.parts) == len(right.parts):
        direct = every(
            [compare(x, y) for x, y in zip(left.parts, right.parts, strict=True)],
            "relation, part by part",
        )
        if direct.equal is not False:
            return direct
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
    """Whether the two differences of sides are the same up to a rational factor."""
    forms = []
    for relation in (left, right):
        first, last = relation.parts
        if not all(_is_expression(part) for part in (first, last)):
            return False
        forms.append(canonical(Binary("-", first, last)))
    a, b = forms
    if not a.top or not b.top:
        return not a.top and not b.top
    key = next(iter(a.top))
    if key not in b.top or a.top.keys() != b.top.keys():
        return False
    factor = Fraction(a.top[key], b.top[key])
    return all(a.top[m] == factor * b.top[m] for m in a.top)


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
    """A list of points with each once: a solution that is named twice is one solution."""
    if group.brackets not in ("", "{}") or not all(isinstance(x, Group) for x in group.items):
        return group
    return Group(group.brackets, tuple(dict.fromkeys(group.items)))


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
