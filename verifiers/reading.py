r"""Text to tree: an answer as a whole, with its lists, relations, units and words."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from .cleaning import clean
from .limits import TooLarge, Unreadable
from .measures import compound
from .numbers import in_base, read_number
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
from .wording import SCALES, WORD_NUMBERS, introduced, spoken_measure, spoken_number

__all__ = ["fold", "parse", "text_key"]

RELATIONS = ("=", "<", ">", "<=", ">=", "!=", "~=", "in")
SETS = {"cup": "|", "cap": "&", "setminus": "\\"}
MAX_ITEMS = 200
_PROSE = re.compile(r"\\(?:text|textbf|mathrm|mbox|textit)\s*\{([^{}]*)\}")
_INTRODUCED = re.compile(r"\s*(?:[A-Za-z]{2,20}[ ,:]{1,3}){1,6}\$([^$]{1,500})\$\s*\.?\s*")
"""Words before one formula: "Answer $ 9 $", "Special matrix: $...$"."""
_OPTION = re.compile(
    r"(?:\\(?:text|textbf|textit|mathrm|mathbf|mathsf)\s*\{\s*\(?([A-J])[).]\s*\}"
    r"|\(([A-J])\)(?=[\s:\\~])|([A-J])[).:](?=[\s~]))"
    r"(?:[\s:~]|\\[ ,;:!]|\\q?quad)*((?![-+*/^=<>])\S.*)",
    re.DOTALL,
)
_NAMED_OPTION = re.compile(
    r"(?:\\text\s*\{\s*)?(?:[Oo]ption\s|[Cc]hoice\s|选项)\s*\(?([A-J])\)?\s*\}?|([A-J])\)"
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
        parts = [self.ratio()]
        ops: list[str] = []
        while self.is_op(*RELATIONS):
            ops.append(self.take().text)
            parts.append(self.ratio())
        return Relation(tuple(ops), tuple(parts)) if ops else parts[0]

    def ratio(self) -> Node:
        """``a : b : c``, or one side alone."""
        parts = [self.side()]
        if isinstance(parts[0], Text) and self.accept(":"):
            return self.side()  # "area: 12"
        while self.accept(":"):
            leading_zero = len(self.next.text) > 1 and self.next.text[0] == "0"
            side = self.side()
            if leading_zero and isinstance(side, Number):
                side = Number(side.value, 0)  # 1:05 is a time
            parts.append(side)
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

    def with_unit(self, value: Node, unit: str) -> Node:
        """A value under its unit; of "2.5 million" the value, of "x-axis" the words."""
        first, _, rest = unit.partition(" ")
        if (scale := SCALES.get(first)) is not None:
            unit = rest
            if isinstance(value, Number) and value.base is None:
                value = Number(value.value * scale)
            else:
                value = Binary("*", value, Number(Fraction(scale)))
        option = isinstance(value, Symbol) and "A" <= value.name <= "J"
        if unit and option and not unit[:1].islower():
            return Labelled(value.name, Text(fold(unit)))  # "C Cecile"
        if unit and isinstance(value, Symbol) and not is_known_unit(normal_unit(unit)):
            return Text(fold(f"{value.name} {unit}"))
        if isinstance(value, Measure) and unit:  # 20^\\circ\\text{C}
            return Measure(value.value, normal_unit(f"{value.unit} {unit}"))
        if unit and self.next.kind == "num":  # 2 hours 30 minutes
            total = compound((Measure(value, normal_unit(unit)), self.measured()))
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
        letter = option.group(1) or option.group(2) or option.group(3)
        return Labelled(letter, parse(option.group(4)))
    if (based := in_base(cleaned)) is not None:
        return Text(based)
    if (option := _NAMED_OPTION.fullmatch(cleaned)) is not None:
        return Symbol(option.group(1) or option.group(2))
    if cleaned[0].isalpha() or cleaned.startswith(("\\t", "\\m")):
        spoken = spoken_number(fold(cleaned))
        if spoken is not None:
            return Number(spoken)
        if (counted := spoken_measure(fold(cleaned))) is not None:
            return Measure(Number(counted[0]), normal_unit(counted[1]))
    try:
        return _whole(cleaned)
    except Unreadable:
        if (formula := _INTRODUCED.fullmatch(text)) is not None:
            return parse(formula.group(1))
        if (rest := introduced(cleaned)) is not None:
            return parse(rest)
        words = fold(cleaned)
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
    if (total := compound(items)) is not None:
        return total
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
