r"""The parser of an answer as a whole: lists, relations, ratios, sets joined, units and words."""

from __future__ import annotations

import re
from fractions import Fraction

from .folding import fold
from .limits import TooLarge, Unreadable
from .measures import compound, lettered
from .parser import Parser
from .tree import (
    Binary,
    Group,
    Labelled,
    Measure,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Union,
    is_inequality,
)
from .units import is_known_unit, normal_unit
from .wording import HAN_SCALES, SCALES

__all__ = ["Reader"]

RELATIONS = ("=", "<", ">", "<=", ">=", "!=", "~=", "in")
ENDS = frozenset((")", "]", "}", "}}", ">>", ",", ";", "&", "or", "\\\\"))
"""Signs after which a value is no part of a relation, a ratio or a union."""
SETS = {"cup": "|", "cap": "&", "setminus": "\\"}
MAX_ITEMS = 200
_HEDGED = re.compile(r"\b(?:wrong|incorrect|false|not|or|maybe|possibly|at least|at most)\b")
_DIGIT = re.compile(r"(?<![\^-])\d")


def is_option(letter: str, words: str) -> bool:
    """Whether a letter before words names an option: they begin with a capital, or are Chinese."""
    return "A" <= letter <= "J" and not words[:1].islower()


class Reader(Parser):
    """The parser with what stands above expressions."""

    def items(self) -> tuple[Node, ...]:
        """Values between commas, semicolons and "and"; each may be a relation."""
        rows: list[list[Node]] = [[]]
        while self.accept(",", ";"):
            pass
        rows[-1].append(self.item())
        if self.next.kind == "end":
            return tuple(rows[0])
        signs: set[str] = set()
        between = (",", ";", "or") if self.cells else (",", ";", "or", "&")
        while self.is_op(*between):
            ends_row = False
            while sign := self.accept(*between):
                ends_row |= sign == ";"
                signs.add(sign)
            if self.next.kind == "end" or self.is_op(")", "]", "}", "}}"):
                break
            if ends_row:
                rows.append([])
            rows[-1].append(self.item())
            if sum(map(len, rows)) > MAX_ITEMS:
                raise TooLarge(f"a list of more than {MAX_ITEMS} values")
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            return tuple(Group("()", tuple(row)) for row in rows)  # p=5, q=2; p=7, q=2
        found = tuple(node for row in rows for node in row)
        conditions = [
            (isinstance(x, Relation) and x.ops == ("=",)) or is_inequality(x) for x in found
        ]
        if "or" in signs and all(conditions) and any(map(is_inequality, found)):
            return (Union("|", found),)
        return found

    def item(self) -> Node:
        """One value, a chain of relations, or a ratio."""
        self.accept("=", "~=")  # "= 5" and "about 5" are 5
        value = self.measured()
        kind, text, _ = self.tokens[self.at]
        if kind != "op" or text in ENDS:
            return value
        parts = [self.ratio(value)]
        ops: list[str] = []
        while self.is_op(*RELATIONS):
            ops.append(self.take().text)
            parts.append(self.ratio())
        return Relation(tuple(ops), tuple(parts)) if ops else parts[0]

    def ratio(self, first: Node | None = None) -> Node:
        """``a : b : c``, or one side alone; its first value may have been read."""
        parts = [self.side(first)]
        if not self.is_op(":"):
            return parts[0]
        if isinstance(parts[0], Text) and self.accept(":"):
            return self.side()  # "area: 12"
        while self.accept(":"):
            leading_zero = len(self.next.text) > 1 and self.next.text[0] == "0"
            side = self.side()
            if leading_zero and isinstance(side, Number):
                side = Number(side.value, 0)  # 1:05 is a time
            parts.append(side)
        return Relation((":",) * (len(parts) - 1), tuple(parts)) if len(parts) > 1 else parts[0]

    def side(self, first: Node | None = None) -> Node:
        """One side of a relation: sets joined, or a value with its unit."""
        value = self.measured() if first is None else first
        while self.is_op(*SETS):
            op = SETS[self.take().text]
            right = self.measured()
            same = isinstance(value, Union) and value.op == op
            value = Union(op, (*value.parts, right) if same else (value, right))  # type: ignore[union-attr]
        return value

    def measured(self) -> Node:
        """A value with the unit before or after it."""
        before = self.take().text if self.tokens[self.at].kind == "unit" else ""
        value = self.expression()
        kind, text, _ = self.tokens[self.at]
        rate = kind == "text" or (kind == "op" and text == "/" and self.peek().kind == "text")
        if rate and not isinstance(value, Text):
            return self.with_unit(value, self.unit(), before)  # $12 per hour, 12 m/s
        if not before and (kind == "end" or (kind == "op" and text != "in")):
            return value
        unit = before
        if self.next.kind == "unit" or (self.is_op("in") and self.peek().kind == "end"):
            unit = self.take().text
        elif self.next.kind == "text" and not isinstance(value, Text):
            unit = self.unit()
        elif self.next.kind == "text":
            words = [value.words]  # type: ignore[union-attr]
            while self.next.kind in ("text", "sym"):
                words.append(self.take().text)
            return Text(fold(" ".join(words)))
        return self.with_unit(value, unit)

    def with_unit(self, value: Node, unit: str, before: str = "") -> Node:
        """A value under its unit; of "2.5 million" the value, of "x-axis" the words."""
        if unit[:1] in HAN_SCALES:
            unit = f"{unit[0]} {unit[1:]}"
        first, _, rest = unit.partition(" ")
        if (scale := SCALES.get(first)) is not None:
            unit = rest
            if isinstance(value, Number) and value.base is None:
                value = Number(value.value * scale)
            else:
                value = Binary("*", value, Number(Fraction(scale)))
        unit = f"{before} {unit}".strip() if before else unit
        if unit and isinstance(value, Symbol) and is_option(value.name, unit):
            return Labelled(value.name, Text(fold(unit)))  # "C Cecile"
        if unit and isinstance(value, Symbol) and not is_known_unit(normal_unit(unit)):
            return Text(fold(f"{value.name} {unit}"))
        if isinstance(value, Measure) and unit:  # 20^\\circ\\text{C}
            return Measure(value.value, normal_unit(f"{value.unit} {unit}"))
        if unit and self.next.kind == "num":  # 2 hours 30 minutes
            total = compound((Measure(value, normal_unit(unit)), lettered(self.measured())))
            if total is None:
                raise Unreadable(f"a number after the unit {unit!r}")
            return total
        return Measure(value, normal_unit(unit)) if unit else value

    def unit(self) -> str:
        """The words of a unit, with powers and slashes."""
        words: list[str] = []
        while (
            self.next.kind in ("text", "sym")
            or self.is_op("^", "/", "-")
            or (self.is_op("*") and self.peek().kind == "text")
        ):
            token = self.take()
            if token.text == "^" and self.accept("{"):
                sign = self.accept("-") or ""
                inner = sign + self.take().text
                self.expect("}")
                words.append(f"^{inner}")
            elif token.text == "^":
                words.append(f"^{self.take().text}")
            else:
                words.append(token.text)
        unit = " ".join(words)
        if _DIGIT.search(unit) or _HEDGED.search(unit):  # "17 or maybe 18", "17 is wrong"
            raise Unreadable(f"a number or a doubt among the words {unit[:40]!r} after a value")
        return unit
