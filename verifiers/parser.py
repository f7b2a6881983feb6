r"""Recursive descent over the tokens of an answer: expressions.

Linear in the number of tokens, bounded in depth. There is no backtracking and no partial parse: a
token that does not fit is a refusal (`Unreadable`), never a shorter answer.
"""

from __future__ import annotations

from fractions import Fraction

from .enclosed import Enclosed
from .lexer import ORDINALS, Token
from .limits import TooLarge, Unreadable
from .literals import ZERO, barred, degrees, going_on, negative, number, residue, scaled
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
    Symbol,
    Text,
    Union,
)

__all__ = ["Parser"]

TRIG = frozenset(["sin", "cos", "tan", "cot", "sec", "csc"])
STARTS = frozenset(("num", "sym", "const", "fn", "frac", "binom"))
OPENERS = frozenset(("(", "{", "lfloor", "lceil"))
GOES_ON = (Token("const", "dots"), Token("text", "repeating", True))
BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
BASES |= {"nine": 9, "ten": 10, "twelve": 12, "sixteen": 16}
CLOSED = [Token("op", "}")]
POSTFIX = frozenset(("^", "!", "%", "deg", "_", "'"))
DOUBLE = Token("op", "!")
MOD = Token("op", "mod")


class Parser(Enclosed):
    """One pass over the tokens of a text; `stepmark.verifiers.reading` adds lists and relations."""

    def expression(self) -> Node:
        """Terms joined by plus, minus, plus-minus."""
        self.enter()
        sign = self.accept("+", "-", "+-", "-+")
        left = self.term()
        if not sign and self.next.kind != "op":
            self.leave()
            return left
        if sign in ("+-", "-+"):
            left = PlusMinus(ZERO, left, 1 if sign == "+-" else -1)
        elif sign == "-":
            left = negative(left)
        links = 0
        while sign := self.accept("+", "-", "+-", "-+"):
            links = self.count(links)
            inner = self.accept("+", "-")
            right = self.term()
            right = negative(right) if inner == "-" else right
            if sign in ("+-", "-+"):
                left = PlusMinus(left, right, 1 if sign == "+-" else -1)
            else:
                left = self.joined(sign, left, right)
        if self.is_op("pmod") or (self.is_op("(") and self.peek() == MOD):
            left = Call("class", (left, self.modulus()))
        self.leave()
        return left

    def joined(self, sign: str, left: Node, right: Node) -> Node:
        """A sum or difference; of sets, the set without another."""
        if isinstance(left, Text) or isinstance(right, Text):
            raise Unreadable("words inside an expression")
        if sign == "-" and isinstance(right, Group) and right.brackets == "{}":
            return Union("\\", (left, right))
        return Binary(sign, left, right)

    def term(self) -> Node:
        """Factors joined by signs or side by side; ``1 1/2`` is one mixed number."""
        plain = self.next.kind == "num"
        first = self.at
        left = self.factor()
        plain = plain and self.at == first + 1
        if plain and (mixed := self.mixed(left)) is not None:
            left, plain = Percent(mixed) if self.accept("%") else mixed, False
        if self.next.kind == "end":
            return left
        links = 0
        while True:
            links = self.count(links)
            if self.is_op("/") and self.peek().kind == "text":
                return left  # a unit: 12 m/s
            if operator := self.accept("*", "/", "mod"):
                sign = self.accept("+", "-")
                plain, first = self.next.kind == "num", self.at
                right = self.factor()
                plain = plain and self.at == first + 1
                right = negative(right) if sign == "-" else right
                left = residue(left, right) if operator == "mod" else scaled(operator, left, right)
            elif not self.starts_factor():
                return left
            else:
                if self.next.kind == "num" and plain:
                    raise Unreadable(f"two numbers side by side, the second {self.next.text!r}")
                plain, first = self.next.kind == "num", self.at
                left = Binary("*", left, self.factor())
                plain = plain and self.at == first + 1
                left = self.product(left)

    def product(self, both: Binary) -> Node:
        """Two values side by side; a letter before several coordinates names a point."""
        match both:
            case Binary(_, Text(), _) | Binary(_, _, Text()):
                raise Unreadable("words inside an expression")
            case Binary("*", Symbol(name), Group("()", items) as point):
                if name.isupper() and len(items) > 1:
                    return point
        return both

    def starts_factor(self) -> bool:
        """Whether the next token can begin a factor that is multiplied without a sign."""
        kind, text, _ = self.tokens[self.at]
        if kind == "op":
            if text == "|":
                return self.bars == 0
            return text in OPENERS and not (text == "(" and self.peek() == MOD)
        if self.at == self.stop or (kind == "const" and text in ("dots", "oo", "emptyset")):
            return False
        return kind in STARTS or (kind == "begin" and text != "cases")

    def mixed(self, whole: Node) -> Node | None:
        r"""``1 1/2`` and ``1\frac12``, when the fraction is proper."""
        if not (isinstance(whole, Number) and whole.places is None and whole.base is None):
            return None
        start = self.at
        part: Node | None = None
        if self.next.kind == "frac":
            part = self.factor()
        elif self.next.kind == "num" and self.next.spaced and self.peek().text == "/":
            top = number(self.take().text)
            self.take()
            if self.next.kind == "num":
                part = Binary("/", top, number(self.take().text))
        match part:
            case Binary("/", Number(top, None, None), Number(bottom, None, None)) if (
                0 < top < bottom
            ):
                return Binary("+", whole, part)
            case Percent(Binary("/", Number() as top, Number() as bottom) as share):
                if 0 < top.value < bottom.value:
                    return Percent(Binary("+", whole, share))
            case Measure(Binary("/", Number() as top, Number() as bottom) as share, unit):
                if 0 < top.value < bottom.value:
                    return Measure(Binary("+", whole, share), unit)
        self.at = start
        return None

    def factor(self) -> Node:
        """A primary with what follows it: powers, factorials, percent, degrees, primes."""
        value = self.primary()
        while (token := self.tokens[self.at]).kind == "op" and token.text in POSTFIX:
            name = token.text
            if name == "^":
                self.take()
                value = self.power(value)
            elif name == "!":
                self.take()
                double = self.next == DOUBLE and self.accept("!")
                value = Call("factorial2" if double else "factorial", (value,))
            elif name == "%":
                self.take()
                value = Percent(value)
            elif name == "deg":
                self.take()
                value = self.degrees(value)
            elif name == "_":
                self.take()
                value = self.subscript(value)
            elif name == "'" and isinstance(value, Symbol):
                self.take()
                value = Symbol(value.name + "'")
            else:
                break
        return value

    def power(self, base: Node) -> Node:
        """The base under its exponent; a raised degree sign or ordinal ending is no exponent."""
        if self.accept("deg"):
            return self.degrees(base)
        if self.is_op("{") and self.peek(2).text == "}":
            inner = self.peek()
            if inner.text == "deg" or inner.text in ORDINALS or inner.text == "'":
                self.at += 3
                return self.degrees(base) if inner.text == "deg" else base
        if self.next.kind == "text" and self.next.text in ORDINALS:
            self.take()
            return base
        exponent = self.argument()
        while self.accept("^"):  # a^b^c, right to left
            exponent = Binary("^", exponent, self.argument())
        return Binary("^", base, exponent)

    def degrees(self, value: Node) -> Node:
        """An angle: in radians under sin, cos ...; elsewhere a measure, of heat beside C or F."""
        if self.trig:
            return degrees(value)
        if self.next.kind == "sym" and self.next.text in ("C", "F"):
            return Measure(value, f"degree {self.take().text}")
        return Measure(value, "degree")

    def argument(self) -> Node:
        """What stands under a radical or in an exponent: braces, brackets or one piece."""
        self.enter()
        if sign := self.accept("-", "+"):
            value = negative(self.argument()) if sign == "-" else self.argument()
        else:
            value = self.primary()
        self.leave()
        return value

    def subscript(self, value: Node) -> Node:
        """A number's base, or a part of a symbol's name."""
        if self.accept("{"):
            parts = []
            while not self.is_op("}"):
                if self.next.kind == "end":
                    raise Unreadable("a subscript that is never closed")
                parts.append(self.take().text)
            self.take()
        else:
            parts = [self.take().text]
        name = "".join(parts)
        if isinstance(value, Number) and value.base is None and value.places is None:
            if name.isdecimal() and 2 <= int(name[:4]) <= 36:
                return Number(value.value, None, int(name))
            if name in BASES:
                return Number(value.value, None, BASES[name])
        if isinstance(value, Symbol):
            return Symbol(f"{value.name}_{name}")
        raise Unreadable(f"the subscript {name!r} of something that takes none")

    def primary(self) -> Node:
        """A number, a symbol, a function with its argument, or something in brackets."""
        token = self.take()
        match token.kind:
            case "num":
                return self.scientific(token)
            case "sym":
                return self.symbol(token.text)
            case "const":
                return Constant(token.text)  # type: ignore[arg-type]
            case "fn":
                return self.function(token.text)
            case "frac":
                top = self.digit_or_group()
                rest = self.next
                bottom = self.digit_or_group()
                if rest.kind == "num" and self.next.kind == "num" and len(rest.text) > 1:
                    raise Unreadable(f"digits behind \\frac without braces: {rest.text!r}")
                return Binary("/", top, bottom)
            case "bind":
                return self.bound(token.text)
            case "binom":
                top = self.digit_or_group()
                return Call("binomial", (top, self.digit_or_group()))
            case "text":
                return Text(token.text)
            case "begin":
                return self.matrix(token.text)
            case "op":
                if token.text == "{" and self.tokens[self.at + 1 : self.at + 2] == CLOSED:
                    return self.braced()
                return self.bracketed(token.text)
        raise Unreadable(f"{token.text or 'the end'!r} where a value belongs")

    def braced(self) -> Node:
        """One token in braces, as most groups are: ``{2}``, without the levels between."""
        token = self.take()
        if token.kind == "num":
            value: Node = number(token.text)
        elif token.kind == "sym":
            value = self.symbol(token.text)
        else:
            self.at -= 1
            return self.bracketed("{")
        self.take()
        return value

    def scientific(self, token: Token) -> Node:
        """A number, with an exponent glued to it such as ``1e-3``."""
        letter, after = self.next, self.peek()
        if letter == ("sym", "e", False) or letter == ("sym", "E", False):
            signed = after.kind == "op" and after.text in "+-"
            digits = self.peek(2) if signed else after
            # "2e-1" is 2e - 1; what no mathematician writes so is an exponent: 1e-3, 2.5e-1, 3e8.
            marked = not signed or letter.text == "E" or "." in token.text or token.text == "1"
            if digits.kind == "num" and digits.text.isdecimal() and not digits.spaced and marked:
                if len(digits.text) > 3:
                    raise TooLarge(f"the exponent {digits.text[:20]}")
                self.at += 3 if signed else 2
                exponent = int(digits.text) * (-1 if after.text == "-" else 1)
                return number(token.text, exponent)
        if "." in token.text and self.next in GOES_ON:
            self.take()
            return going_on(token.text)
        return number(token.text)

    def symbol(self, name: str) -> Node:
        """A free symbol, a constant, or a function that is named by a letter."""
        if name in ("e", "i") and not self.is_op("_"):
            return Constant(name)  # type: ignore[arg-type]
        if name in ("f", "g", "h") and self.is_op("(") and not self.next.spaced:
            self.take()
            args = self.items()
            self.expect(")")
            return Call(f"fn:{name}", args)
        return Symbol(name)

    def digit_or_group(self) -> Node:
        r"""What ``\frac`` takes: braces, or one digit of a number."""
        token = self.next
        if token.kind == "num" and len(token.text) > 1 and token.text.isdecimal():
            self.tokens[self.at] = Token("num", token.text[1:])
            return number(token.text[0])
        self.enter()
        value = self.primary()
        self.leave()
        return value

    def function(self, name: str) -> Node:
        """A function's argument, with or without brackets, its power and its base."""
        self.enter()
        value = self.applied(name)
        self.leave()
        return value

    def applied(self, name: str) -> Node:
        """`function`, without the count of nesting."""
        degree: Node | None = None
        exponent: Node | None = None
        if name == "lim":
            return self.limit()
        if name == "sqrt" and self.accept("["):
            degree = self.expression()
            self.expect("]")
        while self.is_op("_", "^") and name != "sqrt":
            if self.take().text == "_":
                degree = self.argument()
            else:
                exponent = self.argument()
        self.trig += name in TRIG
        args = self.arguments(name)
        self.trig -= name in TRIG
        if name in ("overline", "bar"):
            return barred(args[0])
        if exponent == Number(Fraction(-1)) or exponent == negative(Number(Fraction(1))):
            name, exponent = f"arc{name}", None
        value = Call(name, args if degree is None else (*args, degree))
        return value if exponent is None else Binary("^", value, exponent)

    def arguments(self, name: str) -> tuple[Node, ...]:
        """The values a function is applied to."""
        if self.is_op("("):
            self.take()
            args = self.items()
            self.expect(")")
            return args
        if name == "sqrt" or self.is_op("{"):
            return (self.argument(),)
        value = self.factor()
        while self.starts_factor() and self.next.kind not in ("fn",) and not self.is_op("("):
            value = Binary("*", value, self.factor())
        return (value,)
