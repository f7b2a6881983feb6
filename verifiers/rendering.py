"""Trees as text for people: what ``--explain`` shows as the normal form."""

from __future__ import annotations

from .tree import (
    Binary,
    Call,
    Constant,
    Group,
    Labelled,
    Matrix,
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

__all__ = ["spelled"]


def spelled(node: Node) -> str:
    """A short rendering of a tree, for people: the normal form that ``--explain`` shows."""
    match node:
        case Percent(value):
            return f"{spelled(value)} %"
        case Measure(value, unit):
            return f"{spelled(value)} [{unit}]"
        case Constant(name) | Symbol(name):
            return name
        case Text(words):
            return f'"{words}"'
        case Binary(op, left, right):
            return f"({spelled(left)} {op} {spelled(right)})"
        case Group(brackets, items):
            opening, closing = (brackets[0], brackets[-1]) if brackets else ("", "")
            return f"{opening}{', '.join(map(spelled, items))}{closing}"
        case Relation(ops, parts):
            tail = "".join(
                f" {op} {spelled(part)}" for op, part in zip(ops, parts[1:], strict=True)
            )
            return spelled(parts[0]) + tail
        case Union(op, parts):
            return f" {op} ".join(map(spelled, parts))
        case Labelled(letter, value):
            return f"({letter}) {spelled(value)}"
        case Number(value, _, base):
            return f"{value}_{base}" if base else str(value)
        case Call(name, args):
            return f"{name}({', '.join(map(spelled, args))})"
        case Matrix(rows):
            return "[" + "; ".join(", ".join(map(spelled, row)) for row in rows) + "]"
        case PlusMinus(left, right, _):
            return f"({spelled(left)} ± {spelled(right)})"
