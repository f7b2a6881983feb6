"""An engine that answers from a function, a tokenizer of characters, and problems to ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepmark.seeds import derive_seed
from stepmark.tasks.prompts import PromptTemplate
from stepmark.tasks.task import LoadedTask, data_hash
from stepmark.types import Group, Problem, Prompt, Rollout, Sampling


class FakeTokenizer:
    bos_token_id = None
    bos_token = None
    chat_template = None
    model_max_length = 10_000

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}


class FakeEngine:
    """Answers with ``answer(problem, index, seed)``; counts what it was asked for."""

    def __init__(self, answer: Callable[[Problem, int, int], str], delay_s: float = 0.0) -> None:
        self.answer, self.delay_s = answer, delay_s
        self.asked: list[str] = []

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        for prompt in reversed(prompts):
            time.sleep(self.delay_s)
            self.asked.append(prompt.problem.id)
            yield Group(prompt, tuple(self._one(prompt, k, sampling, seed) for k in range(n)))

    def _one(self, prompt: Prompt, k: int, sampling: Sampling, seed: int) -> Rollout:
        own = derive_seed(seed, prompt.problem.id, k)
        whole = self.answer(prompt.problem, k, own)
        text = whole[: sampling.max_tokens]
        ids = tuple(ord(char) for char in text) or (0,)
        finish = "stop" if text == whole else "length"
        return Rollout(prompt, k, ids, (-0.5,) * len(ids), finish, text, own)

    def sync(self, policy: Any, version: int) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


def sums(count: int, name: str = "sums") -> LoadedTask:
    problems = tuple(
        Problem(f"{name}/{n}", f"{n} + {n}?", str(2 * n), task=name) for n in range(count)
    )
    return LoadedTask(
        name, "1", "test", problems, PromptTemplate("plain", "{problem}\n"), 40, data_hash(problems)
    )


def right_below(bound: int) -> Callable[[Problem, int, int], str]:
    """Right where the number is below the bound; silent where it ends in 9."""

    def answer(problem: Problem, k: int, seed: int) -> str:
        number = int(problem.id.rpartition("/")[2])
        if number % 10 == 9:
            return "I do not know."
        return f"The answer is {2 * number + (number >= bound)}"

    return answer


def mixed(problem: Problem, k: int, seed: int) -> str:
    """Right for two of three seeds, more or less."""
    return f"The answer is {int(problem.gold or 0) + (seed % 3 == 0)}"
