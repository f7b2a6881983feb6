"""Settings of shipped verifiers: frozen, checked, with a digest for keys."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from stepmark.errors import ConfigError, did_you_mean

from .compare import Units

__all__ = ["MathSettings", "settings_of"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class MathSettings:
    """Settings of the verifier `math`."""

    units: Units = "strip"
    """``strip`` drops a unit that one side lacks; ``require`` wants the gold's;
    ``ignore`` drops all."""
    strict: bool = False
    """Accept answers in a box or after ``####`` only."""
    timeout_s: float = 5.0
    """Deadline of one symbolic comparison in a worker, in seconds; tried twice."""


def settings_of(kind: type[S], given: Mapping[str, Any], owner: str) -> S:
    """The settings that a mapping means.

    Raises:
        ConfigError: an unknown setting, or a value of the wrong kind.

    >>> settings_of(MathSettings, {"units": "require"}, "math").units
    'require'
    """
    hints = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name, value in given.items():
        if name not in hints:
            raise ConfigError(
                f"The verifier {owner!r} has no setting {name!r}. "
                f"{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
        if (problem := _problem(hints[name], value)) is not None:
            raise ConfigError(
                f"The setting {name} of the verifier {owner!r} is {value!r}; {problem}."
            )
    return kind(**given)


def _problem(hint: Any, value: Any) -> str | None:
    """What a setting must be, when the value is not that."""
    if get_origin(hint) is typing.Literal:
        allowed = get_args(hint)
        return None if value in allowed else f"allowed: {', '.join(map(repr, allowed))}"
    if hint is bool:
        return None if isinstance(value, bool) else "it must be true or false"
    if hint is float:
        right = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        return None if right else "it must be a number above 0"
    return None


def settings_key(name: str, settings: Any) -> str:
    """The name, with a digest of the settings where they are not the defaults.

    >>> settings_key("math@1", MathSettings())
    'math@1'
    """
    if settings == type(settings)():
        return name
    text = json.dumps(dataclasses.asdict(settings), sort_keys=True)
    return f"{name}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
