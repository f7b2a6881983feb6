"""Contract tests for third parties: does your part keep the promises that ours keep?

`check_backend` needs torch, which is loaded when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from .verifier import Check, CheckFailed, Report, check_verifier

if TYPE_CHECKING:
    from .backend import check_backend

__all__ = ["Check", "CheckFailed", "Report", "check_backend", "check_verifier"]


def __getattr__(name: str) -> Any:
    if name != "check_backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stepmark.errors import require

    require("torch", extra="train", purpose="Checking a backend")
    from .backend import check_backend

    return check_backend
