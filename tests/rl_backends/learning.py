"""What the slow tests and the campaign run: every backend from one SFT checkpoint, on `arith`.

A Llama of two layers learns from demonstrations of which 40 % show their working, and each backend
goes on from there. What a model can is measured on held-out problems: greedily, for accuracies in
pairs, and by eight samples a problem, for the scores and the number of its lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmark.cli.plan import make_plan
from stepmark.cli.wiring import start
from stepmark.config import Flag, compose
from stepmark.engines import TransformersEngine, render
from stepmark.evals import sample_policy
from stepmark.prm import load_scorer
from stepmark.rl_backends.preferences import pairs_from_group
from stepmark.rl_backends.scoring import score_steps
from stepmark.statistics import Paired, paired_shares
from stepmark.store import RunFolder
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama
from stepmark.types import Item, Sampling
from stepmark.verifiers import load_verifier

TASK = "arith?steps=2&max_start=6&max_change=5&product_share=0"
MIXED = f"{TASK}&worked_share=0.4"
SEED = int(os.environ.get("STEPMARK_SEED", "0"))
"""Of the slow tests; they hold on 0, 1 and 2."""

HELD_OUT = 400
"""Problems that are solved greedily; none of them is trained on."""

SFT = (
    "algorithm.backend=sft",
    "algorithm.steps=700",
    "algorithm.learning_rate=4e-3",
    "algorithm.schedule=linear",
    "algorithm.warmup_steps=30",
    "algorithm.adam_beta2=0.98",
    "algorithm.log_entropy=false",
    "rollout.prompts_per_step=32",
)
SHORT = (
    "algorithm.steps=30",
    "algorithm.warmup_steps=0",
    "rollout.prompts_per_step=16",
    "rollout.group_size=8",
    "rollout.temperature=1.0",
)
PREFERENCE = (*SHORT, "algorithm.learning_rate=5e-5")
KEPT = (
    *SHORT,
    "algorithm.learning_rate=3e-4",
    "algorithm.schedule=linear",
    "rollout.temperature=0.7",
)
PPO = (
    "algorithm.backend=ppo",
    "algorithm.steps=30",
    "algorithm.learning_rate=3e-4",
    "algorithm.critic_learning_rate=2e-3",
    "algorithm.critic_warmup_steps=2",
    "algorithm.beta=0.005",
    "algorithm.mu=2",
    "rollout.prompts_per_step=32",
    "rollout.group_size=8",
)
GRPO = (*SHORT, "algorithm.backend=grpo", "algorithm.learning_rate=2e-4", "algorithm.beta=0.005")
PROCESS = (
    *GRPO,
    "algorithm.steps=60",
    'reward.scorers=["arith-steps"]',
    "reward.outcome=1",
    "reward.process=1",
    "reward.largest_single_share=1",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a backend is run: a preset, if any, and settings on top of it."""

    sets: tuple[str, ...]
    preset: str | None = None
    from_pairs: bool = False
    """Whether it learns from preferences between completions of the SFT model."""


RECIPES: Mapping[str, Recipe] = {
    "rft": Recipe((*KEPT, "algorithm.online=false", "algorithm.steps=60"), "rft"),
    "online-rft": Recipe((*KEPT, "algorithm.online=true"), "rft"),
    "dpo": Recipe((*PREFERENCE, "rollout.prompts_per_step=64"), "dpo", from_pairs=True),
    "online-dpo": Recipe((*PREFERENCE, "algorithm.outer=3"), "online-dpo"),
    "spin": Recipe((*PREFERENCE, "algorithm.outer=3", "rollout.group_size=2"), "spin"),
    "ppo": Recipe(PPO),
    "grpo": Recipe(GRPO),
    "grpo-process": Recipe(PROCESS),
    "grpo-steps-alone": Recipe((*PROCESS, "reward.outcome=0")),
    "grpo-iterative": Recipe((*GRPO, "algorithm.outer=3")),
}


def trained(
    folder: Path, model: Path, *sets: str, task: str = TASK, preset: str | None = None, **flags: Any
) -> Path:
    """The checkpoint after a run from a model in a folder."""
    common = ("rollout.max_tokens=32", "algorithm.save_every=none", "data.eval_limit=10")
    given = {"model.policy": Flag("--model", str(model)), "data.task": Flag("--task", [task])}
    given |= {name.replace("__", "."): Flag(name, value) for name, value in flags.items()}
    composed = compose([], [*common, *sets], given, preset=preset)
    return start(make_plan(composed), folder).final


def taught(folder: Path, seed: int = 0) -> Path:
    """The SFT checkpoint that every backend begins with."""
    tokenizer, base = arith_tokenizer(), folder / "base"
    tiny_llama(tokenizer, seed=seed, layers=2, width=64).save_pretrained(base)
    tokenizer.save_pretrained(base)
    return trained(folder / "sft", base, *SFT, f"rollout.seed={seed}", task=MIXED)


def learnt(name: str, folder: Path, model: Path, seed: int = 0) -> Path:
    """The checkpoint of a backend, after its recipe from a model."""
    recipe = RECIPES[name]
    given: dict[str, Any] = {}
    if recipe.from_pairs:
        pairs = folder / "pairs.jsonl"
        pairs.parent.mkdir(parents=True, exist_ok=True)
        write_preferences(model, pairs, seed)
        given = {"data__task": None, "data__dataset": str(pairs), "data__eval_task": [TASK]}
    sets = (*recipe.sets, f"rollout.seed={seed}")
    return trained(folder / "run", model, *sets, preset=recipe.preset, **given)


def write_preferences(model: Path, path: Path, seed: int = 0) -> None:
    """Right over wrong completions of a model on problems to train on, in TRL's columns."""
    engine, task = TransformersEngine.load(model), load_task(TASK, "train")
    sampling = Sampling(temperature=1.0, max_tokens=32)
    verifier = load_verifier("math")
    graded = sample_policy(
        engine, engine.tokenizer, task, verifier, sampling, n=8, seed=seed, limit=600
    )
    groups: dict[str, list[Any]] = {}
    for row, verdict in graded:
        groups.setdefault(row.id, []).append((row, verdict.score))
    lines: list[str] = []
    for rows in groups.values():
        for pair in pairs_from_group([score for _, score in rows], cap=4):
            chosen, rejected = (rows[place][0].completion for place in pair[:2])
            found = {"prompt": rows[0][0].problem, "chosen": chosen, "rejected": rejected}
            lines.append(json.dumps(found))
    path.write_text("\n".join(lines) + "\n")


def metrics(checkpoint: Path) -> list[dict[str, Any]]:
    """What a run wrote of each of its steps."""
    rows = RunFolder.open(checkpoint.parents[1]).metrics()
    return [row for row in rows if row["step"] > 0]


def right(model: Path) -> list[bool]:
    """Which held-out problems a model solves, greedily."""
    engine, task = TransformersEngine.load(model), load_task(TASK, "test")
    sampling = Sampling(temperature=0.0, max_tokens=32)
    graded = sample_policy(
        engine, engine.tokenizer, task, load_verifier("math"), sampling, limit=HELD_OUT
    )
    return [verdict.correct is True for _, verdict in graded]


def paired(after: Sequence[bool], before: Sequence[bool]) -> Paired:
    """The difference of two models on the same problems, with McNemar's exact p."""
    cells = list(zip(after, before, strict=True))
    both, neither = cells.count((True, True)), cells.count((False, False))
    return paired_shares(both, cells.count((True, False)), cells.count((False, True)), neither)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Of each held-out problem, the means over 8 samples; and the lines of a completion."""

    accuracy: list[float]
    steps: list[float]
    """Mean score of its steps by the rules of `arith-steps`."""
    lines: float


def sampled(model: Path) -> Sampled:
    """What 8 samples of a model on 200 held-out problems are worth, as wholes and by their lines.

    The problems are of another seed than the greedy ones.
    """
    task = load_task(f"{TASK}&seed=1&size=200", "test")
    engine, scorer = TransformersEngine.load(model), load_scorer("arith-steps")
    prompts = [render(p, engine.tokenizer, task.prompt) for p in task.problems]
    sampling = Sampling(max_tokens=32, stop=task.prompt.stop)
    groups = {g.prompt.problem.id: g for g in engine.generate(prompts, 8, sampling, seed=5)}
    math, accuracy, steps, counts = load_verifier("math"), [], [], []
    for prompt in prompts:
        rollouts = groups[prompt.problem.id].rollouts
        rows = score_steps(scorer, rollouts, engine.tokenizer)
        verdicts = math([Item(prompt.problem, rollout.text) for rollout in rollouts])
        accuracy.append(sum(verdict.score or 0.0 for verdict in verdicts) / 8)
        every = [score or 0.0 for row in rows for score in row.scores]
        steps.append(sum(every) / len(every))
        counts.append(len(every) / 8)
    return Sampled(accuracy, steps, sum(counts) / len(counts))
