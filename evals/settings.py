"""What an evaluation asks of a model: one value from the caller to the files of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from stepmark.errors import ConfigError
from stepmark.tasks.selection import take
from stepmark.tasks.task import LoadedTask
from stepmark.types import Problem, Sampling

__all__ = ["Asked", "EvalSettings"]


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """The settings of an evaluation; with the task and the verifier they determine its numbers."""

    sampling: Sampling
    """How completions are drawn; temperature 0 is greedy."""
    model: str = "policy"
    """Name or path, for the table and the settings."""
    n: int = 1
    """Completions per problem."""
    seed: int = 0
    """Of the completions; the same for calls that are to be compared in pairs."""
    limit: int | None = None
    """So many problems, sampled by a hash of their ids; all by default."""
    first: int | None = None
    """The first so many problems instead."""
    max_error_share: float = 0.1
    """Largest share of error verdicts, in [0, 1]."""

    def check(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            ConfigError: the message names the setting and its value.
        """
        if self.n < 1:
            raise ConfigError(
                f"n is {self.n}; it is the number of completions per problem, at least 1."
            )
        if self.n > 1 and self.sampling.temperature == 0:
            raise ConfigError(
                f"n is {self.n} at temperature 0: all completions of a problem would be the same. "
                "Set --temperature (0.7 is usual), or --n 1."
            )

    def problems_of(self, task: LoadedTask) -> tuple[Problem, ...]:
        """The problems of a task that are asked.

        Raises:
            ConfigError: limit and first are both given, or one is below 1.
        """
        return take(task.problems, self.limit, self.first)


class Asked(TypedDict, total=False):
    """Fields of `EvalSettings` as keyword arguments: those with defaults, but ``model``."""

    n: int
    seed: int
    limit: int | None
    first: int | None
    max_error_share: float
