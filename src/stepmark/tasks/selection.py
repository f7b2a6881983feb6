"""Fewer problems than a task has: a sample that never changes, or the first ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stepmark.errors import ConfigError
from stepmark.types import Problem

__all__ = ["take"]


def take(
    problems: Sequence[Problem], limit: int | None = None, first: int | None = None
) -> tuple[Problem, ...]:
    """Some of the problems, in their own order.

    ``limit`` samples by a fixed hash of the id: the same ones on every machine and whatever the
    order of the rows, and a smaller limit takes a subset of a larger one. ``first`` takes the first
    ones, which in many data sets are not typical.

    Raises:
        ConfigError: both are given, or one is below 1.
    """
    if limit is not None and first is not None:
        raise ConfigError(
            f"limit is {limit} and first is {first}; give one: limit samples, first takes the head."
        )
    for name, value in (("limit", limit), ("first", first)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be 1 or more.")
    if limit is None:
        return tuple(problems[:first])
    order = sorted(range(len(problems)), key=lambda index: _rank(problems[index].id))
    return tuple(problems[index] for index in sorted(order[:limit]))


def _rank(id: str) -> bytes:
    return hashlib.blake2b(id.encode(), digest_size=8).digest()
