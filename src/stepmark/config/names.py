"""Settings that are several names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

__all__ = ["Names"]


def _names(value: Any) -> Any:
    """``"gsm8k,math"`` -> two names; commas inside brackets belong to a name's settings."""
    if not isinstance(value, str):
        return value
    names, depth, start = [], 0, 0
    for place, char in enumerate(value):
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            names.append(value[start:place])
            start = place + 1
    return [name.strip() for name in [*names, value[start:]] if name.strip()]


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Several names; in a file or on a command line also one text with commas between them."""
