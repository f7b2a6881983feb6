"""A metric over several completions per problem, as it was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric of a run, with its interval."""

    metric: str
    accuracy: float
    low: float
    high: float
    """Bounds of the 95 % interval: Wilson, with the effective sample size."""
    se: float | None
    """Standard error over problems; None for one problem."""
    n: int
    """Problems."""
    k: int
    scorer: str | None = None
    """Key of the scorer that chooses, or weighs votes."""
    aggregation: str | None = None
    unscored: int = 0
    """Completions that the scorer could not score in full: they stand below all others, and their
    votes count nothing."""
    equality: str | None = None
    """Of votes: key of the verifier that says which results are equal."""
    draws: int = 0
    """Subsets of k that were drawn per problem; 0: exact, all were counted."""

    def to_row(self) -> dict[str, Any]:
        """The numbers for machines."""
        return asdict(self)
