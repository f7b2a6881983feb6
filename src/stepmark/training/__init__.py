"""Forward passes, packing and log-probs, shared by everything that trains; needs torch.

The names are loaded when they are asked for, so that importing this package loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .forward import TokenOut, reference_logps, token_logps
    from .packing import pack
    from .sample import TrainingSample

__all__ = ["TokenOut", "TrainingSample", "pack", "reference_logps", "token_logps"]

_HOMES = {
    "TokenOut": "forward",
    "TrainingSample": "sample",
    "pack": "packing",
    "reference_logps": "forward",
    "token_logps": "forward",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from stepmark.errors import require

    require("torch", extra="train", purpose="Training")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
