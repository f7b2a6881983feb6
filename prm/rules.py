r"""`arithmetic`: a step scorer by one rule, that what a step works out must be right.

Every ``a = b`` between two pieces of plain arithmetic, the left one with an operation, is checked
with exact rationals: ``3 * 4 = 12``, ``<<3*4=12>>``, ``\frac{1}{2} + 0.25 = 0.75``,
``\$2 \times 5 = \$10``. A step in which one of them is wrong scores 0, any other step 1: a step
without arithmetic is right as far as this rule can tell. It is a floor, and a check on scorers that
were learnt, not a judge.

The rule accuses rarely. A number with decimals stands for all that round or are cut to it, a whole
number for the quotient that it is the whole part of, ``≈`` for all within 5 %, and a share may be
written in per cent. Sides with variables, powers, or words between the numbers are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar, NamedTuple

from stepmark.types import StepItem, StepScores

from .steps import Span, split_steps

__all__ = ["Arithmetic", "Equation", "equation_holds", "equations"]

LONGEST = 400
"""Characters of one side at most: a longer one is no arithmetic of a step."""
DIGITS = 40
"""Of a number at most; a side with a longer one is not read."""
ROUGH = Fraction(1, 20)
"""Share by which two sides of a sign for nearly equal may differ."""

_WORDS = (
    (re.compile(r"\\(?:left|right|quad|qquad|displaystyle)(?![a-zA-Z])|\\[,;:! ]|\*\*|~"), " "),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-zA-Z])|[×·⋅∗]"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])|÷"), "/"),
    (re.compile(r"\\(?:approx|simeq)(?![a-zA-Z])|≈"), "~"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\?\$|\\[()\[\]]|[€£]"), " "),
    (re.compile(r"\\%"), "%"),
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_TOKEN = re.compile(
    r"\s*(?:(\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+\.\d+|\d+\.?|\.\d+)"
    r"|([-+*/()%])|([xX])(?=\s*[\d.]))"
)
_SIDE = r"[\d\s.,+\-*/()%xX]+"
_TAIL = re.compile(rf"(?:^|(?<=[^\w.^:/]))(?<!\d[.,]){_SIDE}$")
_HEAD = re.compile(_SIDE)
_SIGN = re.compile(r"[=~]")
_BEFORE = re.compile(
    r"\b(?:of|times|by|minus|plus|from|than|over|percent|half|twice|double|triple)\s*$", re.I
)
"""Words that reach into the arithmetic behind them."""
_GOES_ON = re.compile(r"^[^.,;:!?)\]=]*?(?:[+*/]|\s-\s)")


class Equation(NamedTuple):
    """Two pieces of arithmetic that a step says are equal."""

    left: str
    right: str
    is_rough: bool
    """Whether it says so with a sign for nearly equal."""


class Side(NamedTuple):
    """What a piece of arithmetic comes to."""

    value: Fraction
    decimals: int | None
    """Digits behind the point where it is one number; None for an operation."""
    divides: bool
    has_percent: bool


def equations(step: str) -> Iterator[Equation]:
    """Neighbours around the equals signs of a step, as far as they are arithmetic.

    >>> [found[:2] for found in equations("He has 3 + 4 = 5 + 2 = 7 pens, and x = 1 + 1.")]
    [('3 + 4', '5 + 2'), ('5 + 2', '7')]
    """
    for line in re.split(r"\n|<<|>>", step):
        signed = _signs_for_words(line)
        signs = list(_SIGN.finditer(signed))
        edges = [0, *(edge for sign in signs for edge in sign.span()), len(signed)]
        pieces = [signed[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        for sign, (left, right) in zip(signs, pairwise(pieces), strict=True):
            one, two = _tail(left), _head(right)
            if one and two:
                yield Equation(one, two, sign.group() == "~")


def _signs_for_words(text: str) -> str:
    for pattern, sign in _WORDS:
        text = pattern.sub(sign, text)
    while (made := _FRACTION.sub(r"((\1)/(\2))", text)) != text:
        text = made
    return text


def _tail(text: str) -> str:
    """The arithmetic at the end of a text; empty where words reach into it."""
    text = text[-LONGEST:]
    found = _TAIL.search(text)
    if not found:
        return ""
    side, before = _with_digit(found.group()), text[: found.start()].rstrip()
    # A dash with a blank behind it may be a bullet, one behind words an operation on them.
    is_dash = side.startswith("-") and (bool(before) or side[1:2].isspace())
    reaches_in = is_dash or _BEFORE.search(before) is not None
    return "" if reaches_in else side


def _head(text: str) -> str:
    """The arithmetic at the beginning of a text; empty where it goes on in words."""
    text = text[:LONGEST]
    found = _HEAD.match(text)
    if not found:
        return ""
    side, rest = found.group(), text[found.end() :]
    runs_on = bool(rest) and not side[-1].isspace() and (rest[0].isalpha() or rest[0] in "^_{\\!:")
    ends = side.rstrip().endswith((",", "."))
    if runs_on or (not ends and _GOES_ON.match(rest)):
        return ""
    return _with_digit(side)


def _with_digit(side: str) -> str:
    return side.strip(" ,.") if any(map(str.isdigit, side)) else ""


def equation_holds(equation: Equation) -> bool | None:
    """Whether the two sides are equal; None where one cannot be read, or the left is one number.

    >>> [equation_holds(found) for found in equations("10 / 3 = 3.33, then 2 + 2 = 5, then 4 = 4.")]
    [True, False, None]
    """
    left, right = _read(equation.left), _read(equation.right)
    if left is None or right is None or left.decimals is not None:
        return None
    values = [left.value]
    if left.has_percent or right.has_percent:
        values.append(left.value * 100)
    if right.decimals is None:
        return right.value in values or right.value * 100 in values
    shown = right.value * 100 if right.has_percent else right.value
    return any(_stands_for(shown, right.decimals, value, left, equation) for value in values)


def _stands_for(
    shown: Fraction, decimals: int, value: Fraction, left: Side, equation: Equation
) -> bool:
    """Whether a number as written may stand for what the left side comes to."""
    gap = abs(shown - value)
    if equation.is_rough and gap <= max(ROUGH * abs(value), Fraction(1)):
        return True
    digit = Fraction(1, 10**decimals)
    is_cut = (value / digit).denominator != 1 and (decimals > 0 or left.divides)
    return gap == 0 or (is_cut and gap < digit)


def _read(text: str) -> Side | None:
    """The value of a side; None where it is no arithmetic."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found or len(found.group()) > DIGITS:
            return None
        tokens.append("*" if found.group(3) else found.group(1) or found.group(2))
        at = found.end()
    reader = _Reader(tokens)
    try:
        value = reader.sum()
    except (ZeroDivisionError, ValueError, IndexError, RecursionError):
        return None
    if reader.at < len(tokens):
        return None
    numbers = [token for token in tokens if token[0].isdigit() or token[0] == "."]
    is_number = len(numbers) == 1 and not set(tokens) - {*numbers, *"%-()"}
    decimals = len(numbers[0].partition(".")[2]) if is_number else None
    return Side(value, decimals, "/" in tokens, "%" in tokens)


class _Reader:
    """Reads tokens from left to right: sums of products of numbers and brackets."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def sum(self) -> Fraction:
        sign = -1 if self._takes("-") else 1
        value = sign * self._product()
        while self.at < len(self.tokens) and self.tokens[self.at] in "+-":
            sign = 1 if self._takes("+") else -1
            self.at += sign < 0
            value += sign * self._product()
        return value

    def _product(self) -> Fraction:
        value = self._atom()
        while self.at < len(self.tokens) and self.tokens[self.at] in "*/":
            times = self._takes("*")
            self.at += not times
            other = self._atom()
            value = value * other if times else value / other
        return value

    def _atom(self) -> Fraction:
        if self._takes("("):
            value = self.sum()
            if not self._takes(")"):
                raise ValueError("a bracket is not closed")
        else:
            value = Fraction(self.tokens[self.at].replace(",", ""))
            self.at += 1
        return value / 100 if self._takes("%") else value

    def _takes(self, token: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at] == token
        self.at += found
        return found


class Arithmetic:
    """Scores 0 for a step with a wrong equation in it, 1 for any other; see the rules above.

    Args:
        splitter: how a text is divided; see `stepmark.prm.SPLITTERS`.

    >>> from stepmark.types import Problem
    >>> steps = ("3 * 4 = 12, so 12 pens.", "12 + 5 = 16.", "The answer is 16.")
    >>> Arithmetic().score([StepItem(Problem("p", "How many?", "17"), steps)])[0].scores
    (1.0, 0.0, 1.0)
    """

    aggregation: ClassVar[str] = "min"
    """How its scores become that of a solution unless told otherwise."""

    def __init__(self, splitter: str = "newline") -> None:
        self.splitter = splitter
        self.key = "arithmetic@1" if splitter == "newline" else f"arithmetic@1-{splitter}"
        split_steps("", splitter)

    def segment(self, text: str) -> tuple[Span, ...]:
        """The steps of a text as the splitter sees them."""
        return split_steps(text, self.splitter)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """One number per step, 0.0 or 1.0."""
        return [StepScores(tuple(map(_score, item.steps)), self.key) for item in items]


def _score(step: str) -> float:
    return 0.0 if any(equation_holds(found) is False for found in equations(step)) else 1.0
