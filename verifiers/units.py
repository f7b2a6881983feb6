"""Units as words: how they are spelled, and which spellings mean the same."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["CURRENCY", "UNIT_WORDS", "is_known_unit", "normal_unit"]

CURRENCY = {
    "$": "dollar",
    "€": "euro",
    "£": "sterling",
    "¥": "yen",
    "₹": "rupee",
    "¢": "cent",
}

_SAME = {
    "dollar": "dollars usd bucks",
    "euro": "euros eur",
    "cent": "cents ¢",
    "sterling": "gbp £",
    "yen": "jpy",
    "rupee": "rupees inr",
    "celsius": "℃",
    "fahrenheit": "",
    "kN": "kilonewton kilonewtons",
    "degree": "degrees deg °",
    "radian": "radians rad",
    "cm": "厘米 centimeter centimeters centimetre centimetres cms",
    "mm": "毫米 millimeter millimeters millimetre millimetres",
    "m": "米 meter meters metre metres",
    "km": "千米 公里 kilometer kilometers kilometre kilometres kms",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "kg": "千克 公斤 kilogram kilograms kgs kilo kilos",
    "g": "克 gram grams",
    "mg": "milligram milligrams",
    "t": "tonne tonnes 吨",
    "lb": "pound pounds lbs",
    "oz": "ounce ounces",
    "l": "升 L liter liters litre litres",
    "ml": "毫升 milliliter milliliters millilitre millilitres mL",
    "dl": "deciliter deciliters dL",
    "cl": "centiliter centiliters cL",
    "gal": "gallon gallons",
    "qt": "quart quarts",
    "pt": "pint pints",
    "acre": "acres",
    "cup": "cups",
    "tablespoon": "tablespoons tbsp",
    "teaspoon": "teaspoons tsp",
    "ha": "hectare hectares",
    "N": "newton newtons",
    "J": "joule joules",
    "kJ": "kilojoule kilojoules",
    "W": "watt watts",
    "kW": "kilowatt kilowatts",
    "Hz": "hertz",
    "V": "volt volts",
    "knot": "knots",
    "s": "秒 second seconds sec secs",
    "ms": "millisecond milliseconds",
    "min": "分钟 minute minutes mins",
    "h": "小时 hour hours hr hrs",
    "day": "天 days",
    "week": "weeks",
    "month": "months",
    "year": "年 years yr yrs",
    "unit": "units",
    "square unit": "sq square",
    "cubic unit": "cubic cu",
    "percent": "pct",
    "m^2": "平方米",
    "cm^2": "平方厘米",
    "km^2": "平方千米 平方公里",
    "m^3": "立方米",
    "cm^3": "立方厘米",
    "dm": "decimeter decimeters 分米",
    "yuan": "元 rmb",
}
_CANONICAL = {word: unit for unit, words in _SAME.items() for word in [unit, *words.split()]}

_WHOLE = {
    "degree c": "celsius",
    "degree f": "fahrenheit",
    "degree celsius": "celsius",
    "degree fahrenheit": "fahrenheit",
    "degrees celsius": "celsius",
    "degrees fahrenheit": "fahrenheit",
    "mph": "mi/h",
    "kph": "km/h",
    "kmh": "km/h",
    "mps": "m/s",
}

UNIT_WORDS = frozenset(word for word in (*_CANONICAL, "mph", "kph") if len(word) > 1) - {
    "in",
    "min",
    "square unit",
    "ha",
}
"""Words that are units even outside ``\\text{}``; "in" and "min" mean too much else."""


@lru_cache(maxsize=1024)
def normal_unit(text: str) -> str:
    r"""One spelling for units that mean the same.

    >>> normal_unit("  square  centimeters "), normal_unit("miles per hour")
    ('cm^2', 'mi/h')
    """
    folded = text.strip().strip(".,;").replace("²", "^2").replace("³", "^3")
    folded = re.sub(r"\bper\b|\s*/\s*", "/", folded)
    folded = _WHOLE.get(folded.lower(), folded)
    words = re.findall(r"[^\s/^]+|/|\^\{?-?\d+\}?|\^", folded)
    power = ""
    out: list[str] = []
    for word in words:
        if word.lower() in ("square", "sq", "sq.") and len(words) > 1:
            power = "^2"
        elif word.lower() in ("cubic", "cu") and len(words) > 1:
            power = "^3"
        elif word[0] in "/^":
            out.append(word.replace("{", "").replace("}", ""))
        else:
            gap = " " if out and out[-1] not in "/" else ""
            known = _CANONICAL.get(word) or (_CANONICAL.get(word.lower()) if word[1:] else None)
            out.append(gap + (known or (word if word.isupper() else word.lower())) + power)
            power = ""
    return re.sub(r"(?<=\w) (\w+)\^-1$", r"/\1", "".join(out))


_KNOWN = frozenset(_CANONICAL.values())


@lru_cache(maxsize=1024)
def is_known_unit(unit: str) -> bool:
    """Whether a unit in its normal spelling is one: two different ones then differ.

    Other words after a value may be prose, such as "apples".
    """
    return all(part.split("^")[0] in _KNOWN for part in unit.split("/"))
