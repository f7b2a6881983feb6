"""What a search asks: how many beams, how they are chosen, and where they must stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from stepmark.engines.checks import check_sampling
from stepmark.errors import ConfigError, UnknownNameError
from stepmark.prm.aggregation import AGGREGATIONS
from stepmark.protocols import StepScorer
from stepmark.types import Sampling

__all__ = ["Method", "SearchSettings"]

Method = Literal["beam", "dvts", "best_of_n"]
STEP_ENDS = {"newline": ("\n",), "blank_line": ("\n\n",)}
"""Text that ends a step, by the splitter of a scorer; of any other splitter a line."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The settings of a search; with engine, scorer and prompts they determine its completions."""

    method: Method = "beam"
    """``beam``: n beams, of which the best n / width go on, each by ``width`` samples of one step.
    ``dvts``: n / width trees of their own, of each of which the best child goes on. ``best_of_n``:
    n whole completions, no search."""
    n: int = 16
    """Completions of a problem, at most (``beam``, ``dvts``); exactly (``best_of_n``)."""
    width: int = 4
    """Samples that a beam is continued by; it divides n. ``best_of_n`` does not use it."""
    aggregation: str | None = None
    """How step scores become that of a beam, see `stepmark.prm.AGGREGATIONS`. By default the last
    step's for a search, and for ``best_of_n`` what the scorer prefers."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.8))
    """How steps are drawn. ``max_tokens`` bounds a completion; ``stop`` ends it, as ever."""
    max_steps: int = 40
    """Rounds at most. What still goes on then counts as cut off."""
    token_budget: int | None = None
    """Tokens of a problem, over all its beams: once so many are sampled, no round begins."""
    step_end: tuple[str, ...] | None = None
    """Texts that end a step; by default what the scorer's splitter divides at (a line, or a
    paragraph)."""
    seed: int = 0
    """Of all that is drawn."""

    def check(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            UnknownNameError: a method or an aggregation that there is not.
            ConfigError: the message names the setting and its value.
        """
        if self.method not in get_args(Method):
            raise UnknownNameError.of("search method", self.method, get_args(Method))
        if self.aggregation is not None and self.aggregation not in AGGREGATIONS:
            raise UnknownNameError.of("aggregation", self.aggregation, AGGREGATIONS)
        bounds = {"n": self.n, "width": self.width, "max_steps": self.max_steps}
        if self.token_budget is not None:
            bounds["token_budget"] = self.token_budget
        for name, value in bounds.items():
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1. Change it.")
        if self.method != "best_of_n" and self.n % self.width:
            raise ConfigError(
                f"n is {self.n} and width is {self.width}: n beams are made of n / width that are "
                f"continued by {self.width} samples each. Choose a width that divides n, "
                f"such as {_divisor(self.n, self.width)}."
            )
        if self.n > 1 and self.sampling.temperature == 0:
            raise ConfigError(
                f"n is {self.n} at temperature 0: all samples of a step would be the same. "
                "Set --temperature (0.8 is usual), or n and width to 1."
            )
        if "" in (self.step_end or ()) or self.step_end == ():
            raise ConfigError(
                f"step_end is {self.step_end!r}; it holds at least one text, none empty, such as "
                r'("\n",). Change it, or leave it out.'
            )
        check_sampling(self.sampling, self.n)

    def how(self, scorer: StepScorer) -> str:
        """The aggregation that beams are compared by."""
        if self.aggregation is not None:
            return self.aggregation
        own: Any = getattr(scorer, "aggregation", "min")
        return "last" if self.method != "best_of_n" else str(own)

    def step_ends(self, scorer: StepScorer) -> tuple[str, ...]:
        """The texts that end a step of this scorer."""
        return self.step_end or STEP_ENDS.get(getattr(scorer, "splitter", "newline"), ("\n",))


def _divisor(n: int, width: int) -> int:
    return max(number for number in range(1, min(n, width) + 1) if n % number == 0)
