"""A completer that does as it is told: whether a roll-out is right depends on its prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from stepmark.prm.annotation import ToAnnotate
from stepmark.seeds import derive_seed
from stepmark.types import Group, Item, Problem, Prompt, Rollout, Sampling, Verdict


class Letters:
    """A tokenizer with one token a character; it can do what annotation needs."""

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        return ["".join(map(chr, row)) for row in rows]


class Scripted:
    """An engine that says R or W (or ? for no verdict) behind a prefix, by a rule and a seed.

    Args:
        chance: share of right roll-outs by number of steps in the prefix.
        silent: share of roll-outs without a verdict.
        lacks: prompts of a call that are not answered.
    """

    def __init__(
        self, chance: Callable[[int], float], *, silent: float = 0.0, lacks: int = 0
    ) -> None:
        self.chance, self.silent, self.lacks = chance, silent, lacks
        self.tokenizer = Letters()
        self.calls: list[list[Prompt]] = []
        self.max_length: int | None = None
        self.stops_after: int | None = None

    @property
    def drawn(self) -> int:
        return sum(map(len, self.calls))

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        self.calls.append(list(prompts))
        for prompt in prompts[: len(prompts) - self.lacks]:
            if self.stops_after is not None:
                if self.stops_after == 0:
                    raise KeyboardInterrupt
                self.stops_after -= 1
            rows = [self.rollout(prompt, index, seed) for index in range(n)]
            yield Group(prompt, tuple(rows))

    def rollout(self, prompt: Prompt, index: int, seed: int) -> Rollout:
        own = derive_seed(seed, prompt.problem.id, index)
        steps = sum(id == ord("\n") for id in prompt.ids)
        number = (own >> 20) % 10_000 / 10_000
        text = "R" if number < self.chance(steps) else "W"
        text = "?" if (own >> 40) % 10_000 / 10_000 < self.silent else text
        return Rollout(prompt, index, (ord(text),), (0.0,), "stop", text, own)

    def sync(self, policy: Any, version: int) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class LastLetter:
    """Marks a text by its last letter: R is right, ? declines."""

    key = "last-letter@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [
            Verdict.abstained("declined")
            if item.completion.endswith("?")
            else Verdict.marked(item.completion.endswith("R"), "judged")
            for item in items
        ]


def solution(steps: int, *, correct: bool = False, name: str = "p", key: str = "") -> ToAnnotate:
    """A solution whose steps are one letter each, a line a step."""
    lines = [chr(ord("a") + place) for place in range(steps - 1)] + ["R" if correct else "W"]
    text = "\n".join(lines)
    ids = tuple(map(ord, text))
    prompt = Prompt(Problem(name, "q?", "R"), (ord("q"), ord("?")), "q?")
    ends = tuple(min(2 * place + 1, len(ids) - 1) for place in range(steps))
    return ToAnnotate(key or name, prompt, ids, text, tuple(lines), ends)


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def judge() -> LastLetter:
    return LastLetter()


@pytest.fixture
def make() -> Callable[..., ToAnnotate]:
    return solution
