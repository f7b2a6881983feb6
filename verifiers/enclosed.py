r"""What stands between two signs: brackets of every kind, matrices, cases, the range of a limit."""

from __future__ import annotations

from fractions import Fraction

from .cursor import Cursor
from .limits import Unreadable
from .matrices import determinant
from .tree import (
    Binary,
    Call,
    Constant,
    Group,
    Matrix,
    Node,
    Number,
    Symbol,
    Text,
    Union,
    is_inequality,
)

__all__ = ["Enclosed"]

CLOSING = {"{": ("}",), "{{": ("}}",), "<<": (">>",), "]": ("]", "[")}
BUILDERS = (("op", ":"), ("op", "|"), ("op", "in"))
OUTWARD = {"]": "(", "[!": ")"}
"""``]a,b[`` is the open interval, as in French."""
CONDITION = frozenset(["if", "when", "for", "where", "otherwise", "else", "and"])


class Enclosed(Cursor):
    """The part of the parser that reads up to a closing sign; `Parser` has the expressions."""

    def expression(self) -> Node:
        """Terms joined by plus and minus."""
        raise NotImplementedError

    def primary(self) -> Node:
        """One value."""
        raise NotImplementedError

    def term(self) -> Node:
        """Factors joined by signs or side by side."""
        raise NotImplementedError

    def argument(self) -> Node:
        """What stands in braces or is one piece."""
        raise NotImplementedError

    def item(self) -> Node:
        """One value of a list; overridden where relations are allowed."""
        return self.expression()

    def items(self) -> tuple[Node, ...]:
        """Values between commas."""
        found = [self.item()]
        while self.accept(","):
            found.append(self.item())
        return tuple(found)

    def modulus(self) -> Node:
        r"""What follows a residue: ``\pmod{7}``, ``(mod 7)``."""
        if self.accept("pmod"):
            return self.argument()
        self.take()
        self.take()
        value = self.expression()
        self.expect(")")
        return value

    def limit(self) -> Node:
        r"""``\lim_{x \to a}`` of the term that follows."""
        self.expect("_")
        self.expect("{")
        variable = self.primary()
        self.expect("to")
        point = self.expression()
        while self.accept("+", "-", "^"):
            pass
        self.expect("}")
        if not isinstance(variable, Symbol):
            raise Unreadable("a limit without a variable")
        return Call("lim", (self.term(), variable, point))

    def bracketed(self, opening: str) -> Node:
        """What stands between brackets of any kind."""
        self.enter()
        bars, self.bars = self.bars, self.bars + 1 if opening == "|" else 0
        try:
            return self.inside(opening)
        finally:
            self.bars = bars
            self.leave()

    def inside(self, opening: str) -> Node:
        """`bracketed`, after the count of nesting."""
        pairs = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil"), "|": ("|", "abs")}
        if opening in pairs:
            closing, name = pairs[opening]
            value = self.expression()
            self.expect(closing)
            if name == "abs" and isinstance(value, Matrix):
                return determinant(value.rows)
            return Call(name, (value,))
        if opening not in ("(", "[", "]", "{", "{{", "<<"):
            raise Unreadable(f"{opening!r} where a value belongs")
        if opening == "{{" and self.accept("}}"):
            return Constant("emptyset")
        if opening == "{{" and self.next.kind == "sym" and self.peek()[:2] in BUILDERS:
            return self.builder()
        items = self.items()
        if opening == "{" and self.accept("choose"):
            items = (Call("binomial", (items[0], self.expression())),)
        elif opening == "{" and self.accept("over"):
            items = (Binary("/", items[0], self.expression()),)
        closing = self.expect(*CLOSING.get(opening, (")", "]", "[")))
        opening, closing = OUTWARD.get(opening, opening), OUTWARD.get(closing + "!", closing)
        if len(items) == 1 and opening in ("(", "{") and closing in (")", "}"):
            return items[0]
        return Group({"{": "", "{{": "{}", "<<": "()"}.get(opening, opening + closing), items)

    def builder(self) -> Node:
        r"""``\\{x : x > 3\\}``: the set that conditions on one letter describe."""
        variable = self.primary()
        domain = (self.primary(),) if self.accept("in") else ()
        self.expect(":", "|")
        conditions = self.items()
        self.expect("}}")
        reals = not domain or domain[0] == Symbol("reals")
        if reals and all(is_inequality(c) or isinstance(c, Union) for c in conditions):
            return conditions[0] if len(conditions) == 1 else Union("&", conditions)
        return Group("()", (variable, *domain, *conditions))

    def bound(self, name: str) -> Node:
        r"""``\\sum_{k=1}^{n}``, ``\\prod``, ``\\int_a^b ... dx`` with what follows it."""
        if name == "integral":
            return self.integral()
        self.expect("_")
        self.expect("{")
        variable = self.primary()
        self.expect("=")
        low = self.expression()
        self.expect("}")
        self.expect("^")
        high = self.argument()
        if not isinstance(variable, Symbol):
            raise Unreadable("a sum without a variable")
        return Call(name, (self.term(), variable, low, high))

    def integral(self) -> Node:
        """A definite integral; its end is the letter d before a variable."""
        self.expect("_")
        low = self.argument()
        self.expect("^")
        high = self.argument()
        stop = self.at
        while self.tokens[stop][:2] != ("sym", "d") or self.tokens[stop + 1].kind != "sym":
            stop += 1
            if stop >= len(self.tokens) - 1:
                raise Unreadable("an integral without dx")
        outer, self.stop = self.stop, stop
        body = self.expression() if stop > self.at else Number(Fraction(1))
        self.stop = outer
        if self.at != stop:
            raise Unreadable("an integral whose dx is inside brackets")
        self.take()
        return Call("integral", (body, self.primary(), low, high))

    def matrix(self, name: str) -> Node:
        """Rows between ``begin`` and ``end``; of equal length, or refused."""
        if name == "array" and self.accept("{"):
            while not self.accept("}"):
                if self.take().kind == "end":
                    raise Unreadable("an array that is never closed")
        self.enter()
        self.cells += 1
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while self.next.kind != "end":
            if self.accept("\\\\"):
                rows, row = [*rows, tuple(row)] if row else rows, []
            elif not self.accept("&", ",") and not (name == "cases" and self.condition(row)):
                row.append(self.item())
        closing = self.take()
        if closing.kind != "end" or closing.text != name:
            raise Unreadable(f"\\begin{{{name}}} that is never closed")
        rows = [*rows, tuple(row)] if row else rows
        self.cells -= 1
        self.leave()
        return self.laid_out(name, rows)

    def condition(self, row: list[Node]) -> bool:
        """Whether the word before a condition was read: "if", "otherwise"."""
        if self.next.kind != "text" or self.next.text.strip(" ,").lower() not in CONDITION:
            return False
        word = self.take().text.strip(" ,").lower()
        if word in ("otherwise", "else"):
            row.append(Text("otherwise"))
        return True

    def laid_out(self, name: str, rows: list[tuple[Node, ...]]) -> Node:
        """A matrix, a determinant, a system of equations, or the pieces of a function."""
        if name == "cases":
            if rows and all(len(row) == 2 for row in rows):
                return Group("cases", tuple(Group("()", row) for row in rows))
            return Group("", tuple(node for row in rows for node in row))
        if not rows or len({len(row) for row in rows}) != 1:
            raise Unreadable("a matrix whose rows differ in length")
        return determinant(rows) if name == "vmatrix" else Matrix(tuple(rows))
