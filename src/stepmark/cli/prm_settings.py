"""``--set key=value`` of the verbs of ``stepmark prm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmark.errors import ConfigError

__all__ = ["settings_from"]


def settings_from(words: Sequence[str]) -> dict[str, Any]:
    """The settings that such words give; values are read as TOML where they are TOML.

    Raises:
        ConfigError: a word is no ``key=value``.

    >>> settings_from(["tail=mask", "threshold=0.5"])
    {'tail': 'mask', 'threshold': 0.5}
    """
    from stepmark.registry import toml_value

    pairs = [word.partition("=") for word in words]
    if bad := next((key for key, equals, _ in pairs if not equals or not key), None):
        raise ConfigError(f"--set {bad!r} has no value. Write --set key=value, once per setting.")
    return {key: toml_value(value) for key, _, value in pairs}
