"""What figures of first errors are worth: lines that know nothing of the steps, beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .metrics import FirstErrors, first_errors, processbench_f1

__all__ = ["constant_guess", "outcome_oracle"]


def constant_guess(labels: Sequence[int]) -> float:
    """The highest F1 that can be expected of saying the same at random, whatever the solution.

    "No error" with some chance p, else the most frequent first error; p is the best one.

    >>> round(constant_guess([-1, 0, 0, 1]), 3)
    0.404
    """
    errors = [label for label in labels if label >= 0]
    if not errors:
        return 0.0
    share = Counter(errors).most_common(1)[0][1] / len(errors)
    chances = [step / 1000 for step in range(1001)]
    return max(processbench_f1((1 - p) * share, p) for p in chances)


def outcome_oracle(
    labels: Sequence[int], is_correct: Sequence[bool], lengths: Sequence[int]
) -> FirstErrors:
    """The figures of who knows only whether the final answer is right.

    Right: "no error"; wrong: always the same step, the one that gives the highest F1, or the last
    step of shorter solutions.

    Args:
        labels: indices of first errors, -1 for none.
        is_correct: whether each solution's final answer is right.
        lengths: steps of each solution.

    Raises:
        ConfigError: as `first_errors`.
    """

    def said(index: int) -> list[int]:
        return [
            -1 if right else min(index, length - 1)
            for right, length in zip(is_correct, lengths, strict=True)
        ]

    return max(
        (first_errors(said(index), labels) for index in range(max(lengths))),
        key=lambda found: found.f1,
    )
