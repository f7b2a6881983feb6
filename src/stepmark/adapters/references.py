"""A verifier reference that means the same in another folder and in another process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

from stepmark.protocols import OutcomeVerifier
from stepmark.registry import Reference
from stepmark.verifiers import registry, remembered
from stepmark.verifiers.combine import WEIGHTED
from stepmark.verifiers.functions import FunctionVerifier

__all__ = ["VerifierLike", "by_origin", "portable", "short_name"]

VerifierLike = str | Mapping[str, Any] | Reference | Callable[..., Any] | OutcomeVerifier
"""What `stepmark.verifiers.load_verifier` takes."""


@overload
def portable(reference: str | Mapping[str, Any] | Reference) -> Reference: ...
@overload
def portable(reference: VerifierLike) -> VerifierLike: ...
def portable(reference: VerifierLike) -> VerifierLike:
    """The reference with its files named from the root, and names of ``./stepmark.toml`` resolved.

    The same is done to the parts of a combination, which become tables. Verifier objects and
    functions come back as they are.

    Raises:
        ConfigError: ``./stepmark.toml`` cannot be read, or the reference names nothing.
    """
    if not isinstance(reference, str | Mapping | Reference):
        return reference
    wanted = Reference.parse(reference)
    known = {} if ":" in wanted.name or wanted.name in registry.entries() else remembered(Path())
    if wanted.name in known:
        inner = Reference.parse(known[wanted.name])
        wanted = Reference(inner.name, {**inner.settings, **wanted.settings})
    place, colon, attribute = wanted.name.rpartition(":")
    if colon and place.endswith(".py"):
        full = Path(place).expanduser().resolve()
        wanted = Reference(f"{full}:{attribute}", wanted.settings)
    parts = wanted.settings.get("of")
    if isinstance(parts, Mapping):
        parts = list(parts.items())
    if isinstance(parts, list | tuple):
        wanted = Reference(wanted.name, {**wanted.settings, "of": [_part(part) for part in parts]})
    return wanted


def _part(part: Any) -> Any:
    """A part of a combination as a table that is portable; its weight stands in the table."""
    inner, weight = part if isinstance(part, tuple) else (part, None)
    if isinstance(inner, str) and (match := WEIGHTED.fullmatch(inner)) is not None:
        inner, weight = match.group(2), float(match.group(1))
    found = portable(inner)
    if not isinstance(found, Reference):
        return part
    table = {"name": found.name, **found.settings}
    return table if weight is None else {**table, "weight": weight}


def by_origin(verifier: FunctionVerifier) -> Reference | None:
    """The file or module that a verifier's function can be loaded from again, with its settings.

    None where there is no such place (notebooks, ``__main__``, lambdas). Functions of files cannot
    be pickled by name, and this can.
    """
    if verifier.origin is None:
        return None
    deadline = {} if "timeout_s" in verifier.parameters else {"timeout_s": verifier.timeout_s}
    return Reference(verifier.origin, {**deadline, **verifier.settings})


def short_name(reference: VerifierLike) -> str:
    """A name for metrics: what was named, with its settings, in letters that trackers take.

    >>> short_name("physics.py:units"), short_name("math?units=require")
    ('units', 'math-units-require')
    """
    if isinstance(reference, str | Mapping | Reference):
        wanted = Reference.parse(reference)
        text = str(Reference(wanted.name.rpartition(":")[2], wanted.settings))
    else:
        key = getattr(reference, "key", None) or getattr(reference, "__name__", "verifier")
        text = str(key).partition("@")[0]
    return re.sub(r"[^\w.-]+", "-", text).strip("-") or "verifier"
