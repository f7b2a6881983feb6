r"""Text to tree: an answer as a whole, with its lists, relations, units and words."""

from __future__ import annotations

import re
from functools import lru_cache

from .lexer import clean
from .limits import TooLarge, Unreadable
from .literals import number
from .numbers import WORD_NUMBERS, read_number
from .parser import Parser
from .tree import (
    Binary,
    Constant,
    Group,
    Labelled,
    Measure,
    Node,
    Percent,
    Relation,
    Symbol,
    Text,
    Union,
)
from .units import normal_unit

__all__ = ["fold", "parse", "spelled", "text_key"]

RELATIONS = ("=", "<", ">", "<=", ">=", "!=", "~=", "in")
SETS = {"cup": "|", "cap": "&", "setminus": "\\"}
MAX_ITEMS = 200
_PROSE = re.compile(r"\\(?:text|textbf|mathrm|mbox|textit)\s*\{([^{}]*)\}")
_INTRODUCED = re.compile(r"\s*(?:[A-Za-z]{2,20}[ ,:]{1,3}){1,6}\$([^$]{1,500})\$\s*\.?\s*")
"""Words before one formula: "Answer $ 9 $", "Special matrix: $...$"."""
_OPTION = re.compile(
    r"(?:\\(?:text|textbf|textit|mathrm|mathbf|mathsf)\s*\{\s*\(([A-J])\)\s*\}|\(([A-J])\)(?=[\s:\\~]))"
    r"(?:[\s:~]|\\[ ,;:!]|\\q?quad)*((?![-+*/^=<>])\S.*)",
    re.DOTALL,
)
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|(?<![\\])\$|\s+")
_DIGIT = re.compile(r"(?<![\^-])\d")
_WORD = re.compile(r"[A-Za-zÀ-ɏ一-鿿]{2,}")


def text_key(text: str) -> str:
    r"""The text without what never carries meaning; equal keys are equal answers.

    A space between two letters or digits stays: ``2 2/3`` is not ``22/3``.

    >>> text_key(r"\left( 3, \dfrac{1}{2} \right)") == text_key(r"(3,\frac{1}{2})")
    True
    """
    pieces = [
        piece
        for piece in _SPACING.split(text.replace("dfrac", "frac").replace("tfrac", "frac"))
        if piece
    ]
    out = ""
    for piece in pieces:
        out += f" {piece}" if out and out[-1].isalnum() and piece[0].isalnum() else piece
    return out.rstrip(".")


def fold(text: str) -> str:
    r"""Words alone: no LaTeX around them, one space between, lower case but for a single letter.

    >>> fold(r"\text{ Evelyn}."), fold("(B)")
    ('evelyn', 'B')
    """
    words = _PROSE.sub(r" \1 ", text)
    words = re.sub(r"\\[,;:! ]|[$\\{}*]", " ", words)
    words = " ".join(words.split()).strip(" .,;:!?\"'`")
    if len(words) == 3 and words[0] in "([" and words[-1] in ")]":
        words = words[1]
    return words if len(words) == 1 else words.lower()


class Reader(Parser):
    """The parser with what stands above expressions."""

    def items(self) -> tuple[Node, ...]:
        """Values between commas, semicolons and "and"; each may be a relation."""
        rows: list[list[Node]] = [[]]
        while self.accept(",", ";"):
            pass
        rows[-1].append(self.item())
        while self.is_op(",", ";"):
            ends_row = False
            while sign := self.accept(",", ";"):
                ends_row |= sign == ";"
            if self.next.kind == "end" or self.is_op(")", "]", "}", "}}"):
                break
            if ends_row:
                rows.append([])
            rows[-1].append(self.item())
            if sum(map(len, rows)) > MAX_ITEMS:
                raise TooLarge(f"a list of more than {MAX_ITEMS} values")
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            return tuple(Group("()", tuple(row)) for row in rows)  # p=5, q=2; p=7, q=2
        return tuple(node for row in rows for node in row)

    def item(self) -> Node:
        """One value, a chain of relations, or a ratio."""
        self.accept("=", "~=")  # "= 5" and "about 5" are 5
        parts = [self.ratio()]
        ops: list[str] = []
        while self.is_op(*RELATIONS):
            ops.append(self.take().text)
            parts.append(self.ratio())
        return Relation(tuple(ops), tuple(parts)) if ops else parts[0]

    def ratio(self) -> Node:
        """``a : b : c``, or one side alone."""
        parts = [self.side()]
        while self.accept(":"):
            parts.append(self.side())
        return Relation((":",) * (len(parts) - 1), tuple(parts)) if len(parts) > 1 else parts[0]

    def side(self) -> Node:
        """One side of a relation: sets joined, or a value with its unit."""
        value = self.measured()
        while self.is_op(*SETS):
            op = SETS[self.take().text]
            right = self.measured()
            same = isinstance(value, Union) and value.op == op
            value = Union(op, (*value.parts, right) if same else (value, right))  # type: ignore[union-attr]
        return value

    def measured(self) -> Node:
        """A value with the unit before or after it."""
        before = self.take().text if self.next.kind == "unit" else ""
        value = self.expression()
        unit = before
        if self.next.kind == "unit":
            unit = self.take().text
        elif self.next.kind == "text" and not isinstance(value, Text):
            unit = self.unit()
        elif self.next.kind == "text":
            words = [value.words]  # type: ignore[union-attr]
            while self.next.kind in ("text", "sym"):
                words.append(self.take().text)
            return Text(fold(" ".join(words)))
        if isinstance(value, Measure) and unit:  # 20^\\circ\\text{C}
            return Measure(value.value, normal_unit(f"{value.unit} {unit}"))
        return Measure(value, normal_unit(unit)) if unit else value

    def unit(self) -> str:
        """The words of a unit, with powers and slashes."""
        words: list[str] = []
        while self.next.kind in ("text", "sym") or self.is_op("^", "/", "-"):
            token = self.take()
            if token.text == "^" and self.accept("{"):
                inner = self.take().text
                self.expect("}")
                words.append(f"^{inner}")
            elif token.text == "^":
                words.append(f"^{self.take().text}")
            else:
                words.append(token.text)
        unit = " ".join(words)
        if _DIGIT.search(unit):  # "17 or maybe 18" is no 17
            raise Unreadable(f"a number among the words {unit[:40]!r} after a value")
        return unit


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    r"""The tree of an answer as found in a box, after a phrase, or in a gold.

    Raises:
        Unreadable: it is neither maths to its end nor words.
        TooLarge: it is longer, deeper or larger than the bounds.

    >>> parse("1,000")
    Number(value=Fraction(1000, 1), places=None, base=None)
    >>> parse(r"\text{Evelyn}")
    Text(words='evelyn')
    """
    simple = read_number(text)
    if simple is not None:
        return simple
    cleaned = clean(text)
    if not cleaned:
        raise Unreadable("nothing")
    if (option := _OPTION.fullmatch(cleaned)) is not None:
        return Labelled(option.group(1) or option.group(2), parse(option.group(3)))
    words = fold(cleaned)
    if words.lower() in WORD_NUMBERS:
        return number(str(WORD_NUMBERS[words.lower()]))
    try:
        return _whole(cleaned)
    except Unreadable:
        if (introduced := _INTRODUCED.fullmatch(text)) is not None:
            return parse(introduced.group(1))
        if is_words(cleaned):
            return Text(words)
        raise


def _whole(cleaned: str) -> Node:
    reader = Reader(cleaned)
    items = reader.items()
    if reader.next.kind != "end" or reader.next.text:
        raise Unreadable(f"{reader.next.text!r} after the end of a value")
    if len(items) == 1:
        return Text(fold(items[0].words)) if isinstance(items[0], Text) else items[0]
    if len(items) == 2 and _joined(items):
        return items[0]
    return Group(
        "", tuple(Text(fold(item.words)) if isinstance(item, Text) else item for item in items)
    )


def _joined(items: tuple[Node, ...]) -> bool:
    """Whether the second item is only prose that follows a comma, such as "5, as wanted"."""
    if not isinstance(items[1], Text) or isinstance(items[0], Text):
        return False
    words = items[1].words.split()
    guesses = any(word in WORD_NUMBERS or word in ("or", "maybe") for word in words)
    return len(words) > 1 and not guesses and not _DIGIT.search(items[1].words)


def is_words(cleaned: str) -> bool:
    """Whether a text that is no maths reads as words: they make up most of it."""
    prose = _PROSE.sub(r" \1 ", cleaned)
    if (
        re.search(r"\\[A-Za-z]", prose)
        or "__" in prose
        or re.search(r"[\w)]\s*[=^<>]\s*[\w(\\]", prose)
    ):
        return False
    letters = sum(len(word) for word in _WORD.findall(prose))
    return letters * 2 > len(re.sub(r"\s", "", prose)) or bool(
        re.fullmatch(r"\W?[A-Za-z]\W?", prose)
    )


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
    return _spelled_leaf(node)


def _spelled_leaf(node: Node) -> str:
    value = getattr(node, "value", None)
    if value is not None:
        base = getattr(node, "base", None)
        return f"{value}_{base}" if base else str(value)
    args = getattr(node, "args", None)
    if args is not None:
        return f"{node.name}({', '.join(map(spelled, args))})"  # type: ignore[union-attr]
    rows = getattr(node, "rows", None)
    if rows is not None:
        return "[" + "; ".join(", ".join(map(spelled, row)) for row in rows) + "]"
    return f"({spelled(node.left)} ± {spelled(node.right)})"  # type: ignore[union-attr]
