"""A verifier reference that means the same in another folder and in another process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepmark.protocols import OutcomeVerifier
from stepmark.registry import Reference
from stepmark.verifiers import registry, remembered
from stepmark.verifiers.functions import FunctionVerifier

__all__ = ["VerifierLike", "by_origin", "portable", "short_name"]

VerifierLike = str | Mapping[str, Any] | Reference | Callable[..., Any] | OutcomeVerifier
"""What `stepmark.verifiers.load_verifier` takes."""


def portable(reference: VerifierLike) -> VerifierLike:
    """The reference with its file named from the root, and names of ``./stepmark.toml`` resolved.

    Verifier objects and functions come back as they are.

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
    return wanted


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
