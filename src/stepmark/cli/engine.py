"""Engines by reference, with their settings checked before a model is loaded."""

from __future__ import annotations

import inspect
from typing import Any

from stepmark.errors import ConfigError, did_you_mean
from stepmark.registry import Reference

__all__ = ["engine_class"]

OURS = ("self", "model", "tokenizer", "path_or_hub")
"""Parameters of an engine that no setting fills."""


def engine_class(reference: str, *, loads: bool = False) -> tuple[Any, dict[str, Any]]:
    """What a reference such as ``transformers?batch_size=16`` names, and its settings.

    Args:
        reference: name, ``module:attr`` or ``file.py:attr``, with settings.
        loads: the settings are those of its ``load`` instead of its own.

    Raises:
        UnknownNameError: no engine is called that.
        ConfigError: a setting that the engine does not have.
    """
    from stepmark.engines import engines

    asked = Reference.parse(reference)
    kind: Any = engines.load(asked.name)
    parameters = inspect.signature(kind.load if loads else kind).parameters
    if not any(found.kind is found.VAR_KEYWORD for found in parameters.values()):
        known = [name for name in parameters if name not in OURS]
        for name in asked.settings:
            if name not in known:
                raise ConfigError(
                    f"The engine {asked.name!r} has no setting {name!r}. "
                    f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}."
                )
    return kind, dict(asked.settings)
