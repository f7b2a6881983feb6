"""Where the steps of a completion end: the one rule that every use of step rewards follows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from stepmark.errors import DataError

__all__ = ["check_steps"]


def check_steps(
    scores: Sequence[float | None], ends: Sequence[int], length: int, *, to_the_end: bool = False
) -> None:
    """Refuse steps that cannot belong to a completion of so many sampled tokens.

    Args:
        scores: one per step.
        ends: index of the last sampled token of each step, from 0.
        length: sampled tokens of the completion.
        to_the_end: whether the last step must end on the last token. Tokens behind the last step
            would get no signal, the end token among them.

    Raises:
        DataError: names the numbers that do not fit.

    >>> check_steps([0.5, 1.0], [1, 3], 4, to_the_end=True)
    """
    if len(scores) != len(ends):
        raise DataError(
            f"A completion has {len(scores)} step scores and {len(ends)} step ends; it needs one "
            "end per score. Scores are matched to steps by their index: check the scorer's segment."
        )
    places = [-1, *ends, length]
    if any(later <= earlier for earlier, later in pairwise(places)):
        raise DataError(
            f"Step ends {list(ends)} do not rise within a completion of {length} sampled tokens: "
            f"each must lie above the one before, from 0 to {length - 1}. "
            "Check the scorer's segment."
        )
    if to_the_end and ends and ends[-1] != length - 1:
        raise DataError(
            f"The last step ends on token {ends[-1]} of a completion of {length} sampled tokens; "
            f"it must end on the last one, {length - 1}: tokens behind it would never be trained. "
            "Move the last end there (the end token belongs to the last step)."
        )
