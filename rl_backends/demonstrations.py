"""A data set as an engine: instead of sampling it hands out the worked solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stepmark.errors import DataError, SetupError
from stepmark.types import Group, Prompt, Rollout, Sampling

__all__ = ["CutTexts", "Demonstrations"]

LOOKED_AT = 1_000
"""Texts that are tokenised at once to find those that are too long, longest first."""


class CutTexts(NamedTuple):
    """How many texts do not fit, and the room that all would need."""

    number: int
    longest: int
    """Tokens of the longest one, with its end token."""


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

    def cut(self, texts: Sequence[str], max_tokens: int) -> CutTexts:
        """How many of the texts `rollout` would cut.

        They are looked at from the longest on, in characters, until a thousand of them fit: what
        comes after has fewer tokens, or nearly.
        """
        by_length = sorted(texts, key=len, reverse=True)
        count = longest = 0
        for start in range(0, len(by_length), LOOKED_AT):
            some = by_length[start : start + LOOKED_AT]
            rows = self.tokenizer(some, add_special_tokens=False)["input_ids"]
            lengths = [len(row) + 1 for row in rows]
            longest = max(longest, *lengths)
            found = sum(length > max_tokens for length in lengths)
            count += found
            if not found:
                break
        return CutTexts(count, longest)

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
