"""Engines draw completions: ids in, ids out. `stepmark.engines.transformers` runs in process.

`render` is the one place where a problem becomes prompt ids. Importing this package loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepmark.registry import Registry

from .offsets import token_offsets
from .render import render

if TYPE_CHECKING:
    from .loading import load_policy
    from .transformers import TransformersEngine

__all__ = ["TransformersEngine", "engines", "load_policy", "render", "token_offsets"]

engines: Registry[Any] = Registry("engine", "stepmark.engines")
"""Engine classes by name; third parties register in the same entry-point group."""

_HOMES = {"TransformersEngine": "transformers", "load_policy": "loading"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
