"""The typed tree that an answer becomes: plain values, picklable, never source text.

Sums, products and powers are kept as written; `stepmark.verifiers.canonical` gives them a normal
form. Structures (lists, intervals, relations) only stand above expressions, never below them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

__all__ = [
    "Binary",
    "Call",
    "Constant",
    "Group",
    "Labelled",
    "Matrix",
    "Measure",
    "Node",
    "Number",
    "Percent",
    "PlusMinus",
    "Relation",
    "Symbol",
    "Text",
    "Union",
    "is_inequality",
    "substituted",
]


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational; a decimal remembers how many digits it shows."""

    value: Fraction
    places: int | None = None
    """The last digit shown stands for ``10 ** -places``; None when no point is written."""
    base: int | None = None
    """The base that a subscript names: ``value`` is then the digits read in base ten."""


@dataclass(frozen=True, slots=True)
class Constant:
    """pi, e, i, infinity, or dots that stand for left-out terms."""

    name: Literal["pi", "e", "i", "oo", "dots", "emptyset"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A free variable, with its subscript; case matters."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Two parts under ``+``, ``-``, ``*``, ``/`` or ``^``; a minus sign is ``0 - x``."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A named function of arguments: sin, log (base last), root (degree last), factorial ..."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """Two values at once; `sign` is -1 for minus-plus."""

    left: Node
    right: Node
    sign: int = 1


@dataclass(frozen=True, slots=True)
class Percent:
    """A value written with a percent sign."""

    value: Node


@dataclass(frozen=True, slots=True)
class Measure:
    """A value with a unit; the unit is normalised text such as ``cm^2`` or ``$``."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Group:
    """Values in brackets or bare: ``()``, ``[)``, ``{}`` ...; brackets "" is a list without any."""

    brackets: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Union:
    r"""Sets joined (``|``) or a set without another (``\``) or intersected (``&``)."""

    op: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of equal length."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain such as ``1 < x <= 2``: one more part than there are operators."""

    ops: tuple[str, ...]
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    r"""An option with what it says: ``\\textbf{(B)}\\ 12``."""

    letter: str
    value: Node


@dataclass(frozen=True, slots=True)
class Text:
    """Words, folded to lower case; one letter is a choice and keeps its case."""

    words: str


Node = (
    Number
    | Constant
    | Symbol
    | Binary
    | Call
    | PlusMinus
    | Percent
    | Measure
    | Group
    | Union
    | Matrix
    | Relation
    | Labelled
    | Text
)


def is_inequality(node: Node) -> bool:
    """Whether a node is a chain of smaller and larger signs, or one unequal sign."""
    if not isinstance(node, Relation):
        return False
    return node.ops == ("!=",) or all(op in ("<", ">", "<=", ">=") for op in node.ops)


def substituted(node: Node, name: str, value: Node) -> Node:
    """An expression with a value in place of a symbol."""
    match node:
        case Symbol(own) if own == name:
            return value
        case Binary(op, left, right):
            return Binary(op, substituted(left, name, value), substituted(right, name, value))
        case Call(own, args):
            return Call(own, tuple(substituted(arg, name, value) for arg in args))
    return node
