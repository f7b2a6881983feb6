"""Settings of shipped verifiers: frozen, checked, with a digest for keys."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from stepmark.errors import ConfigError, did_you_mean

from .compare import Units
from .policy import STRICT, Policy

__all__ = [
    "Allowed",
    "Count",
    "MathSettings",
    "NotNegative",
    "PolicyName",
    "check_settings",
    "settings_of",
]

S = TypeVar("S")


class Allowed(NamedTuple):
    """What a setting may be beyond its type: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


NotNegative = Annotated[float, Allowed("a number of 0 or more", lambda value: value >= 0)]
Count = Annotated[int, Allowed("a whole number of 0 or more", lambda value: value >= 0)]
Digits = Annotated[int, Allowed("a whole number of 1 or more", lambda value: value >= 1)]
PolicyName = Annotated[str, Allowed("the name of a policy", lambda value: bool(Policy.of(value)))]
"""``lenient``, ``strict``, or rules joined by ``+``: see `stepmark.verifiers.policy`."""


@dataclass(frozen=True, slots=True)
class MathSettings:
    """Settings of the verifier `math`."""

    units: Units = "strip"
    """``strip`` drops a unit that one side lacks; ``require`` wants the gold's;
    ``ignore`` drops all."""
    strict: bool = False
    """Accept answers in a box or after ``####`` only; short for ``policy="strict"``."""
    timeout_s: float = 5.0
    """Deadline of one symbolic comparison in a worker, in seconds; tried twice."""
    policy: PolicyName = "lenient"
    """Which extraction rules are allowed: ``lenient``, ``strict``, or ``boxed+hash+phrase``."""
    min_digits: Digits = 4
    """A decimal stands for an exact value that it rounds if it shows so many significant digits:
    0.3333 is 1/3 and 0.33 is not. Whole numbers are never rounded to."""

    @property
    def extraction(self) -> Policy:
        """The policy that both settings mean."""
        return STRICT if self.strict else Policy.of(self.policy)


def settings_of(kind: type[S], given: Mapping[str, Any], owner: str) -> S:
    """The settings that a mapping means.

    Raises:
        ConfigError: an unknown setting, or a value of the wrong kind.

    >>> settings_of(MathSettings, {"units": "require"}, "math").units
    'require'
    """
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"The verifier {owner!r} has no setting {name!r}. "
                f"{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
    settings = kind(**given)
    check_settings(settings, owner)
    return settings


def check_settings(settings: Any, owner: str) -> None:
    """Refuse settings of which one has a value that it cannot have.

    Raises:
        ConfigError: names the setting, the value and what is allowed.
    """
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if (problem := _problem(hints[field.name], value)) is not None:
            raise ConfigError(
                f"The setting {field.name} of the verifier {owner!r} is {value!r}; {problem}."
            )


def _problem(hint: Any, value: Any) -> str | None:
    """What a setting must be, when the value is not that."""
    if get_origin(hint) is Annotated:
        kind, allowed = get_args(hint)
        right = _is(kind, value) and allowed.holds(value)
        return None if right else f"it must be {allowed.words}"
    if get_origin(hint) is typing.Literal:
        choices = get_args(hint)
        return None if value in choices else f"allowed: {', '.join(map(repr, choices))}"
    if hint is bool:
        return None if isinstance(value, bool) else "it must be true or false"
    if hint is float:
        return None if _is(float, value) and value > 0 else "it must be a number above 0"
    if hint is str:
        return None if isinstance(value, str) else "it must be a text"
    return None


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool) and kind is not bool:
        return False
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)


def settings_key(name: str, settings: Any) -> str:
    """The name, with a digest of the settings where they are not the defaults.

    >>> settings_key("math@1", MathSettings())
    'math@1'
    """
    if settings == type(settings)():
        return name
    return f"{name}-{digest(dataclasses.asdict(settings))}"


def digest(value: Any) -> str:
    """Eight hexadecimal digits that stand for plain values in a key."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
