"""The dry run over golds that ``verify``, ``train`` and ``eval run`` begin with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .console import warn

if TYPE_CHECKING:
    from stepmark.protocols import OutcomeVerifier

__all__ = ["tell_golds"]


def tell_golds(
    verifier: OutcomeVerifier, golds: Iterable[tuple[str, str | None]], what: str = ""
) -> None:
    """Say how many golds the verifier cannot read, and which, before anything costly starts.

    Args:
        verifier: what will mark.
        golds: id and gold of each problem.
        what: names them in front of the line, such as a task.
    """
    from stepmark.evals import check_golds

    found = check_golds(verifier, golds)
    if found is not None and found.bad:
        warn(f"{what}: {found}" if what else str(found))
