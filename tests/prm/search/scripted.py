"""An engine that writes by a function and stops at stop strings; one token a character."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepmark.seeds import derive_seed
from stepmark.types import Group, Problem, Prompt, Rollout, Sampling, StepItem, StepScores

END = 0
"""The id of the end token."""
Write = Callable[[str, str, random.Random], str]
"""From the problem's text, what is written so far and a source of chance: all that follows."""


class CharTokenizer:
    bos_token_id = None
    bos_token = None
    chat_template = None
    model_max_length = 10_000
    name_or_path = "characters"

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        return ["".join(chr(id) for id in row if id != END) for row in rows]


class ScriptedEngine:
    """Samples what ``write`` says; counts what it was asked for, and the tokens it gave."""

    def __init__(self, write: Write, *, max_length: int | None = None) -> None:
        self.write, self.max_length = write, max_length
        self.tokenizer = CharTokenizer()
        self.asked: list[tuple[str, int, Sampling]] = []
        self.tokens = 0

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        for prompt in reversed(prompts):
            self.asked.append((prompt.problem.id, n, sampling))
            yield Group(prompt, tuple(self._one(prompt, k, sampling, seed) for k in range(n)))

    def _one(self, prompt: Prompt, k: int, sampling: Sampling, seed: int) -> Rollout:
        own = derive_seed(seed, prompt.problem.id, k)
        question, _, before = self.tokenizer.batch_decode([prompt.ids])[0].partition(">")
        rng = random.Random(own if sampling.temperature else question + before)
        ids: list[int] = []
        finish = "length"
        text = self.write(question, before, rng)
        for id in [*map(ord, text), END]:
            ids.append(id)
            stopped = any(stop in "".join(map(chr, ids)) for stop in sampling.stop)
            if id == END or stopped:
                finish = "stop"
            if finish == "stop" or len(ids) == sampling.max_tokens:
                break
        self.tokens += len(ids)
        whole = self.tokenizer.batch_decode([ids])[0]
        places = [whole.find(stop) for stop in sampling.stop if stop in whole]
        logps = tuple(-0.01 * (id % 7) for id in ids)
        text = whole[: min(places)] if places else whole
        return Rollout(prompt, k, tuple(ids), logps, finish, text, own)  # type: ignore[arg-type]

    def sync(self, policy: Any, version: int) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class ByFunction:
    """A scorer of lines: ``score(problem, steps so far) -> number or None``."""

    key = "by-function@1"
    aggregation = "min"

    def __init__(self, score: Callable[[Problem, tuple[str, ...]], float | None]) -> None:
        self.one = score
        self.seen: list[tuple[str, ...]] = []

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        from stepmark.prm import split_steps

        return split_steps(text)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        self.seen += [item.steps for item in items]
        return [
            StepScores(
                tuple(self.one(i.problem, i.steps[: at + 1]) for at in range(len(i.steps))),
                self.key,
            )
            for i in items
        ]


def bits(question: str, before: str, rng: random.Random) -> str:
    """One bit a line, as many as the question has; then an answer that repeats them."""
    wanted = len(question.strip())
    lines = [line for line in before.split("\n") if line]
    out = ""
    while len(lines) < wanted:
        lines.append(rng.choice("01"))
        out += f"{lines[-1]}\n"
    return out + f"answer: {''.join(lines)}"


def right_bits(problem: Problem, steps: tuple[str, ...]) -> float:
    """1 for a step that agrees with the problem so far."""
    gold = problem.gold or ""
    last = steps[-1]
    if last.startswith("answer"):
        return float(last == f"answer: {gold}")
    return float("".join(steps) == gold[: len(steps)])


def prompts(*golds: str) -> list[Prompt]:
    """Problems whose bits are to be found."""
    tokenizer = CharTokenizer()
    made = [Problem(f"bits/{at}", gold, gold) for at, gold in enumerate(golds)]
    return [
        Prompt(one, tuple(tokenizer(f"{one.text}>")["input_ids"]), f"{one.text}>") for one in made
    ]
