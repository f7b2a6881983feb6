"""Sampled completions with the worked solution behind them: what self-play compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stepmark.protocols import Engine
from stepmark.types import Group, Prompt, Sampling

from .demonstrations import Demonstrations

__all__ = ["SelfPlay"]


class SelfPlay:
    """An `Engine` whose groups end with the problem's demonstration.

    Args:
        engine: draws all but the last completion of a group.
        tokenizer: the policy's, for the demonstrations.

    Raises:
        SetupError: the tokenizer has no end token.
    """

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self.engine, self.demonstrations = engine, Demonstrations(tokenizer)

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        """Groups of ``n - 1`` sampled completions and, last, the demonstration.

        Raises:
            DataError: a problem has no worked solution.
        """
        groups = self.demonstrations.generate(prompts, 1, sampling, seed)
        shown = {group.prompt.problem.id: group.rollouts[0] for group in groups}
        for group in self.engine.generate(prompts, n - 1, sampling, seed):
            last = replace(shown[group.prompt.problem.id], index=n - 1)
            yield Group(group.prompt, (*group.rollouts, last))

    def sync(self, policy: Any, version: int) -> None:
        """The sampling engine takes over the weights."""
        self.engine.sync(policy, version)

    def sleep(self) -> None:
        """As the sampling engine does."""
        self.engine.sleep()

    def wake(self) -> None:
        """As the sampling engine does."""
        self.engine.wake()

    def close(self) -> None:
        """As the sampling engine does."""
        self.engine.close()
