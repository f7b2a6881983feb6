"""Units as words: how they are spelled, and which spellings mean the same."""

from __future__ import annotations

import re

__all__ = ["CURRENCY", "KNOWN", "UNIT_WORDS", "normal_unit"]

CURRENCY = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}

_SAME = {
    "dollar": "dollars usd bucks",
    "euro": "euros eur",
    "cent": "cents",
    "degree": "degrees deg °",
    "radian": "radians rad",
    "cm": "centimeter centimeters centimetre centimetres cms",
    "mm": "millimeter millimeters millimetre millimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres kms",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "kg": "kilogram kilograms kgs kilo kilos",
    "g": "gram grams",
    "mg": "milligram milligrams",
    "lb": "pound pounds lbs",
    "oz": "ounce ounces",
    "l": "liter liters litre litres",
    "ml": "milliliter milliliters millilitre millilitres mL",
    "s": "second seconds sec secs",
    "min": "minute minutes mins",
    "h": "hour hours hr hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years yr yrs",
    "mph": "",
    "unit": "units",
    "square unit": "sq square",
    "cubic unit": "cubic cu",
    "percent": "pct",
}
_CANONICAL = {word: unit for unit, words in _SAME.items() for word in [unit, *words.split()]}

UNIT_WORDS = frozenset(word for word in _CANONICAL if len(word) > 1) - {"in", "min", "square unit"}
"""Words that are units even outside ``\\text{}``; "in" and "min" mean too much else."""


def normal_unit(text: str) -> str:
    r"""One spelling for units that mean the same.

    >>> normal_unit("  square  centimeters "), normal_unit("miles per hour")
    ('cm^2', 'mi/h')
    """
    folded = text.strip().strip(".,;").replace("²", "^2").replace("³", "^3")
    folded = re.sub(r"\bper\b", "/", folded if folded.isupper() else folded.lower())
    words = re.findall(r"[^\s/^]+|/|\^\S+", folded)
    power = ""
    out: list[str] = []
    for word in words:
        if word in ("square", "sq", "sq.") and len(words) > 1:
            power = "^2"
        elif word in ("cubic", "cu") and len(words) > 1:
            power = "^3"
        elif word[0] in "/^":
            out.append(word.replace("{", "").replace("}", ""))
        else:
            gap = " " if out and out[-1] not in "/" else ""
            out.append(gap + _CANONICAL.get(word, word) + power)
            power = ""
    return "".join(out)


KNOWN = frozenset(_CANONICAL.values())
"""Normal spellings: two different ones are different units; free words may be prose."""
