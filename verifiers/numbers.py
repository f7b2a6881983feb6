r"""The fast lane: an answer that is one plain number, read exactly by one regular expression.

Most answers are. What this lane does not match goes to the tokens and the parser, which read the
same forms to the same values.
"""

from __future__ import annotations

import re
from fractions import Fraction

from .limits import MAX_DIGITS
from .tree import Measure, Node, Number, Percent
from .units import CURRENCY, UNIT_WORDS, normal_unit

__all__ = ["in_base", "read_number"]

_NUMBER = re.compile(
    r"\s*(?P<sign>[-−+]?)\s*(?P<currency>\\?\$|€|£)?\s*"
    r"(?P<digits>\d{1,3}(?:,\d{3})+|\d+)?(?P<places>\.\d*)?"
    r"(?:\s*(?P<percent>\\?%)|\s*(?P<slash>/)\s*(?P<bottom>\d+))?"
    r"(?:\s*(?P<unit>[A-Za-z]+))?\s*\.?\s*"
)


_BASED = re.compile(
    r"\(?(?:\\(?:text|mathrm)\s*\{)?\s*(?P<digits>[0-9A-Za-z]{1,40}(?:\.[0-9A-Za-z]{1,40})?)\s*\}?\)?"
    r"\s*_\s*\{?\s*(?P<base>\d{1,2})\s*\}?"
)


def in_base(text: str) -> str | None:
    r"""The words for a number with letters or a point in a named base; None for other texts.

    Whole numbers of decimal digits are read by the parser.

    >>> in_base(r"\text{2F}_{16}") == in_base("2f_{16}"), in_base("101_2"), in_base("a_1")
    (True, None, None)
    """
    match = _BASED.fullmatch(text) if "_" in text else None
    if match is None or match["digits"].isdecimal() or not match["digits"][:1].isalnum():
        return None
    base = int(match["base"])
    whole, _, places = match["digits"].partition(".")
    if not any(char.isdecimal() for char in whole) or not 2 <= base <= 36:
        return None
    try:
        value = Fraction(int(whole + places, base), base ** len(places))
    except ValueError:  # a digit that the base does not have
        return None
    return f"{value} written in base {base}"


def read_number(text: str) -> Node | None:
    """The value of a text that is one number with sign, currency, percent or unit; else None.

    >>> read_number("$1,234.50").value
    Number(value=Fraction(2469, 2), places=2, base=None)
    >>> read_number("x+1") is None
    True
    """
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_DIGITS else None
    if match is None:
        return None
    sign, currency, digits, places, percent, slash, bottom, unit = match.groups()
    if digits is None and (places is None or len(places) < 2):
        return None
    if digits is not None and digits[0] == "0" and "," in digits:
        return None  # "0,123" is not a number with separators
    if unit is not None and unit not in UNIT_WORDS and unit.lower() not in UNIT_WORDS:
        return None  # a symbol, a word, a million: for the parser
    if (currency and unit) or (slash and (places or int(bottom) == 0)):
        return None
    value = Fraction(int((digits or "0").replace(",", "")))
    shown = len(places) - 1 if places else 0
    if shown:
        value += Fraction(int(places[1:]), 10**shown)
    value = value / int(bottom) if slash else value
    node: Node = Number(-value if sign in ("-", "−") and sign else value, shown or None)
    if percent or unit in ("percent", "pct"):
        return Percent(node)
    if currency:
        return Measure(node, CURRENCY[currency[-1]])
    return Measure(node, normal_unit(unit)) if unit else node
