r"""Values with units: what is dropped, what is converted, what is different.

``2 hours 30 minutes`` is one measure; ``25 m/s`` beside a speed is one too, where it would be a
product of letters elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .comparison import Compare, Comparison, no, yes
from .conversion import conversion
from .evaluate import names
from .literals import degrees
from .tree import Binary, Measure, Node, Number, Percent, Symbol
from .units import is_known_unit, normal_unit

__all__ = ["Units", "compare_measures", "compound", "lettered"]

Units = Literal["strip", "require", "ignore"]
MONEY = frozenset(("dollar", "euro", "sterling", "yen", "yuan", "rupee"))
HEAT = frozenset(("celsius", "fahrenheit"))


def compare_measures(left: Node, right: Node, units: Units, compare: Compare) -> Comparison:
    """Whether two values, at least one with a unit, are the same quantity."""
    left, right = lettered(left), lettered(right)
    a, x = (left.unit, left.value) if isinstance(left, Measure) else ("", left)
    b, y = (right.unit, right.value) if isinstance(right, Measure) else ("", right)
    if units == "require" and a and a != b:
        return no("unit")
    if units != "ignore":
        for rule in (_angles, _units):
            special = rule(a, b, x, y, units, compare)
            if special is not None:
                return special
    inner = compare(x, y)
    return Comparison(
        inner.equal, f"{inner.rule}, unit {'equal' if a == b else 'dropped'}", inner.pairs
    )


def _angles(a: str, b: str, x: Node, y: Node, units: Units, compare: Compare) -> Comparison | None:
    """Degrees against radians, named or not; degrees of heat against degrees."""
    if {a, b} not in ({"degree", ""}, {"degree", "radian"}) or units == "require":
        return None
    angle = compare(degrees(x) if a == "degree" else x, degrees(y) if b == "degree" else y)
    if angle.equal:
        return yes("degrees as radians")
    return no("unit") if "radian" in (a, b) else None


def _units(a: str, b: str, x: Node, y: Node, units: Units, compare: Compare) -> Comparison | None:
    """Two units that differ; None where one is dropped or they are the same."""
    shares = isinstance(x, Percent) != isinstance(y, Percent)
    if shares and is_known_unit(a or b):
        return no("unit")  # "50 cm" is not "50%"
    if not a or not b or a == b:
        return None
    if not (is_known_unit(a) and is_known_unit(b)):
        if names(x) or names(y):
            return no("words after a symbol")
        rates = [unit.rpartition("/")[2] for unit in (a, b) if "/" in unit]
        if len(rates) == 2 and rates[0] != rates[1] and all(map(is_known_unit, rates)):
            return no("unit")  # beats per minute, beats per second
        # Words after a number are prose more often than units: "18 ways", "18 arrangements".
        return None
    if a.endswith("unit") or b.endswith("unit"):
        return None  # "6 units" leaves the length open
    if "degree" in (a, b) and HEAT & {a, b}:
        return None
    if {a, b} & MONEY and a.partition("/")[0] == b.partition("/")[0]:
        return None  # $12 beside $12 per hour
    factor = None if units == "require" else conversion(a, b)
    if factor is None:
        return no("unit")
    inner = compare(Binary("*", x, Number(factor)), y)
    return Comparison(inner.equal, f"{inner.rule}, unit converted", inner.pairs)


def lettered(node: Node) -> Node:
    """``5 g``, ``25 m/s``, ``3 m^2``: a number and letters that make a known unit, as a measure."""
    if not isinstance(node, Binary):
        return node
    value, unit = _letters(node)
    if value is None or not unit:
        return node
    unit = normal_unit(unit)
    return Measure(value, unit) if is_known_unit(unit) else node


def _letters(node: Node) -> tuple[Node | None, str]:
    match node:
        case Number():
            return node, ""
        case Binary(("*" | "/") as op, left, right):
            value, unit = _letters(left)
            power = _power(right)
            if value is None or power is None:
                return None, ""
            return value, unit + ("/" if op == "/" else "") + power
    return None, ""


def _power(node: Node) -> str | None:
    match node:
        case Symbol(name):
            return name
        case Binary("^", Symbol(name), Number(exponent, None, None)):
            return f"{name}^{exponent}"
    return None


def compound(items: Sequence[Node]) -> Node | None:
    """One measure of several that follow each other: 2 hours and 30 minutes, 5 feet, 3 inches."""
    if not 2 <= len(items) <= 4 or not all(isinstance(item, Measure) for item in items):
        return None
    measures = [item for item in items if isinstance(item, Measure)]
    total: Node | None = None
    last = measures[-1].unit
    for one, after in zip(measures, [*measures[1:], None], strict=True):
        factor = conversion(one.unit, last) if is_known_unit(one.unit) else None
        smaller = after is None or (conversion(one.unit, after.unit) or 0) > 1
        if factor is None or not smaller:
            return None
        part = Binary("*", one.value, Number(factor)) if factor != 1 else one.value
        total = part if total is None else Binary("+", total, part)
    return None if total is None else Measure(total, last)
