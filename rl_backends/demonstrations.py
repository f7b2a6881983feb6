"""A data set as an engine: instead of sampling it hands out the worked solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stepmark.errors import DataError, SetupError
from stepmark.types import Group, Prompt, Rollout, Sampling

__all__ = ["Demonstrations"]


class Demonstrations:
    """An `Engine` whose completions are the problems' worked solutions, end token included.

    A solution longer than ``max_tokens`` is cut there, without an end token, and its ``finish`` is
    ``length``. Log-probs are 0: nothing was sampled.
    """

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise SetupError(
                "The tokenizer has no end token, so a model could not learn where a solution ends. "
                "Set one and save it:\n    tokenizer.eos_token = '...'"
                "; tokenizer.save_pretrained(DIR)"
            )
        self.tokenizer = tokenizer

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        """One group per prompt, holding its solution ``n`` times.

        Raises:
            DataError: a problem has no worked solution.
        """
        for prompt in prompts:
            solution = _solution(prompt)
            rows = (self.rollout(prompt, solution, k, sampling.max_tokens) for k in range(n))
            yield Group(prompt, tuple(rows))

    def rollout(self, prompt: Prompt, text: str, index: int, max_tokens: int) -> Rollout:
        """A text as a completion of a prompt: its tokens and the end token, cut where too long."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        whole = (*ids, self.tokenizer.eos_token_id)
        return Rollout(
            prompt=prompt,
            index=index,
            ids=whole[:max_tokens],
            logps=(0.0,) * min(len(whole), max_tokens),
            finish="stop" if len(whole) <= max_tokens else "length",
            text=text,
            seed=0,
        )

    def sync(self, policy: Any, version: int) -> None:
        """Nothing to take over."""

    def sleep(self) -> None:
        """Nothing to free."""

    def wake(self) -> None:
        """Nothing to restore."""

    def close(self) -> None:
        """Nothing to release."""


def _solution(prompt: Prompt) -> str:
    solution = prompt.problem.solution
    if not solution:
        raise DataError(
            f"The problem {prompt.problem.id!r} has no worked solution to learn from. "
            "Name its column with data.solution_column, or choose a backend that needs none: "
            'algorithm.backend = "grpo".'
        )
    return solution
