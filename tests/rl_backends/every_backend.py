"""Every backend on the bandit, with several epochs and minibatches in a step: to be stopped in it.

Each case is what `Bandit.train` takes; `started` makes the run anew, as a new process would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from runpy import run_path
from typing import Any

import torch

from stepmark.rl_backends import (
    Dpo,
    DpoConfig,
    Grpo,
    GrpoConfig,
    OnlineDpo,
    OnlineDpoConfig,
    Policy,
    Ppo,
    PpoConfig,
    Reward,
    Rft,
    RftConfig,
    Sft,
    SftConfig,
    Spin,
    SpinConfig,
)
from stepmark.training.checkpoint import load_state
from stepmark.types import Prompt, StepScores

HashedSteps = run_path(str(Path(__file__).with_name("hashed_steps.py")))["HashedSteps"]

STEPS, MU, MINIBATCHES = 4, 2, 3


class WordScorer:
    """Scores every word of a completion: 1 for the word b."""

    key = "words@1"

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return tuple(found.span() for found in re.finditer(r" ?\w+", text))

    def score(self, items: Any) -> list[StepScores]:
        return [
            StepScores(tuple(float(step.strip() == "b") for step in item.steps), self.key)
            for item in items
        ]


@dataclass(frozen=True)
class Case:
    """A backend, its settings, and what scores steps for it."""

    backend: type[Any]
    config: type[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    scorer: Callable[[], Any] | None = None


CASES = {
    "sft": Case(Sft, SftConfig, {"mu": 3, "schedule": "cosine"}),
    "grpo": Case(Grpo, GrpoConfig, {"outer": 2}),
    "grpo-process": Case(Grpo, GrpoConfig, {"mu": 3}, WordScorer),
    "grpo-iterative": Case(Grpo, GrpoConfig, {"outer": 2}, lambda: HashedSteps("word")),
    "ppo": Case(Ppo, PpoConfig, {"critic_learning_rate": 1e-2, "weight_decay": 0.1}),
    "ppo-shared": Case(Ppo, PpoConfig, {"critic": "shared", "schedule": "linear", "mu": 3}),
    "ppo-warm-up": Case(Ppo, PpoConfig, {"critic_warmup_steps": 2, "weight_decay": 0.1}),
    "dpo": Case(Dpo, DpoConfig, {"outer": 2}),
    "online-dpo": Case(OnlineDpo, OnlineDpoConfig, {"outer": 2}),
    "spin": Case(Spin, SpinConfig, {"outer": 2}),
    "rft": Case(Rft, RftConfig, {"outer": 2, "mu": 3}),
    "rft-online": Case(Rft, RftConfig, {"online": True, "mu": 3}),
}


def backend_of(name: str, **given: Any) -> Any:
    """The backend of a case; four steps of at least six optimizer steps unless told."""
    case = CASES[name]
    common = {"steps": STEPS, "mu": MU, "minibatches": MINIBATCHES, "learning_rate": 1e-2}
    often = {"save_every": None, "keep_checkpoints": 99, "eval_every": 2}
    return case.backend(case.config(**{**common, **often, **case.settings, **given}))


def _prompts(run: Any) -> Callable[[int], list[Prompt]]:
    """The bandit's prompts with a pair in each problem, and a demonstration."""
    prompts = run.train.__globals__["bandit_prompts"](run.policy)
    pair = {"chosen": "b", "rejected": "c"}

    def chosen(step: int) -> list[Prompt]:
        return [
            replace(prompt, problem=replace(prompt.problem, meta=pair, solution="b"))
            for prompt in prompts(step)
        ]

    return chosen


def _evaluate(policy: Policy, step: int) -> dict[str, float]:
    """A number that changes with any weight: other weights at this moment would be seen."""
    return {"accuracy": sum(float(w.detach().double().sum()) for w in policy.model.parameters())}


class Started:
    """One run of a case, made afresh; ``go`` trains what is left of it."""

    def __init__(self, bandit: type[Any], name: str, path: Path, *, resume: bool = False) -> None:
        self.name, self.run = name, bandit(path, resume=resume)
        # Enough completions for every group to have a right one: RFT learns from those alone.
        table = {"max_tokens": 4, "group_size": 8}
        self.run.rollout = self.run.rollout.model_copy(update=table)
        make = CASES[name].scorer
        self.scorer = None if make is None else make()
        scorers = () if self.scorer is None else ((self.scorer, 1.0),)
        self.reward = Reward(((self.run.verifier, 1.0),), scorers, process=0.5)

    def go(self, on_event: Callable[[Any], None] | None = None, **settings: Any) -> Any:
        return self.train(backend_of(self.name, **settings), on_event)

    def train(self, backend: Any, on_event: Callable[[Any], None] | None = None) -> Any:
        return self.run.train(
            backend,
            prompts=_prompts(self.run),
            reward=self.reward,
            evaluate=_evaluate,
            on_event=on_event,
        )


def difference(one: Path, two: Path) -> str | None:
    """What two finished runs differ in, bit for bit; None where they are equal."""
    from stepmark.store import RunFolder

    first, second = RunFolder.open(one), RunFolder.open(two)
    finals = [run.checkpoints / "final" for run in (first, second)]
    if len({(final / "model.safetensors").read_bytes() for final in finals}) != 1:
        return "weights"
    if first.metrics() != second.metrics():
        return "metrics"
    if list(first.samples.rows()) != list(second.samples.rows()):
        return "samples"
    for kind in ("verdicts", "scores"):
        keys = [getattr(run.samples, f"{kind[:-1]}_keys")() for run in (first, second)]
        if keys[0] != keys[1]:
            return f"keys of {kind}"
        for key in keys[0]:
            said = [getattr(run.samples, kind)(key) for run in (first, second)]
            if said[0] != said[1]:
                return kind
    states = [load_state(final) for final in finals]
    for name in ("optimizer", "critic", "reference", "reward_models", "best", "best_step", "step"):
        if not equal(*(getattr(state, name) for state in states)):
            return name
    return None


def equal(one: Any, two: Any) -> bool:
    """Whether two trees of tables, lists and tensors are the same, bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two
