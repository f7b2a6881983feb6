"""How many of one unit make another, exactly, where the package pint knows both.

Only the spellings of `stepmark.verifiers.units` are looked up: text of a model never gets here.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

__all__ = ["conversion"]

_NAMES = {
    "cm": "centimeter", "dm": "decimeter", "mm": "millimeter", "m": "meter", "km": "kilometer",
    "in": "inch", "ft": "foot", "yd": "yard", "mi": "mile", "kg": "kilogram", "g": "gram",
    "mg": "milligram", "t": "tonne", "lb": "pound", "oz": "ounce", "l": "liter",
    "ml": "milliliter", "dl": "deciliter", "cl": "centiliter", "gal": "gallon", "qt": "quart",
    "pt": "pint", "s": "second", "ms": "millisecond", "min": "minute", "h": "hour", "day": "day",
    "week": "week", "month": "month", "year": "year", "acre": "acre", "ha": "hectare",
    "N": "newton", "kN": "kilonewton", "J": "joule", "kJ": "kilojoule", "W": "watt",
    "kW": "kilowatt", "Hz": "hertz", "Pa": "pascal", "V": "volt", "cup": "cup",
    "tablespoon": "tablespoon", "teaspoon": "teaspoon", "A": "ampere", "knot": "knot",
    "dollar": "us_dollar", "cent": "us_cent",
}  # fmt: skip
_PART = re.compile(r"(/?)([A-Za-z]+)(?:\^(\d))?\s*")


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        return None  # the extra [units] is not installed: different units stay different
    registry: Any = pint.UnitRegistry(non_int_type=Fraction)  # type: ignore[arg-type]
    registry.define("us_dollar = [us_currency]")
    registry.define("us_cent = us_dollar / 100")
    return registry


@lru_cache(maxsize=1024)
def conversion(unit: str, other: str) -> Fraction | None:
    """What a value in one unit is multiplied with to have it in the other; None if unknown.

    >>> conversion("m", "cm"), conversion("mi/h", "km/h"), conversion("m", "s")
    (Fraction(100, 1), Fraction(25146, 15625), None)
    """
    one, two = _base(unit), _base(other)
    if one is None or two is None or one[1] != two[1]:
        return None
    return one[0] / two[0]


def _base(unit: str) -> tuple[Fraction, dict[str, int]] | None:
    """A unit as a factor and the powers of base units."""
    registry = _registry()
    parts = _PART.findall(unit)
    if registry is None or "".join(f"{s}{n}{'^' + p if p else ''}" for s, n, p in parts) != unit:
        return None
    factor, powers = Fraction(1), dict[str, int]()
    for slash, name, power in parts:
        if name not in _NAMES:
            return None
        count = int(power or 1) * (-1 if slash else 1)
        base = registry.Quantity(Fraction(1), _NAMES[name]).to_base_units()
        factor *= Fraction(base.magnitude) ** count
        for key, exponent in base.unit_items():
            powers[key] = powers.get(key, 0) + int(exponent) * count
    return factor, {key: power for key, power in powers.items() if power}
