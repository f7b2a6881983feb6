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
            one = self._demonstration(prompt, sampling.max_tokens)
            yield Group(prompt, tuple(self._numbered(prompt, one, k) for k in range(n)))

    def _demonstration(self, prompt: Prompt, max_tokens: int) -> tuple[int, ...]:
        solution = prompt.problem.solution
        if not solution:
            raise DataError(
                f"The problem {prompt.problem.id!r} has no worked solution to learn from. "
                "Name its column with data.solution_column, or choose a backend that needs none: "
                'algorithm.backend = "grpo".'
            )
        ids = self.tokenizer(solution, add_special_tokens=False)["input_ids"]
        return tuple([*ids, self.tokenizer.eos_token_id][:max_tokens])

    def _numbered(self, prompt: Prompt, ids: tuple[int, ...], index: int) -> Rollout:
        ended = ids[-1] == self.tokenizer.eos_token_id
        return Rollout(
            prompt=prompt,
            index=index,
            ids=ids,
            logps=(0.0,) * len(ids),
            finish="stop" if ended else "length",
            text=str(prompt.problem.solution),
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
