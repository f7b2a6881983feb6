"""PPO raises the accuracy of a small SFT model on new `arith` problems, and its critic learns.

The model is taught half with and half without working, which is right more often: there is
something to find. One seed and a short budget; the thresholds are what that seed reached, here
beside them, less a margin for processors that round differently. With half as many problems a step
one of three seeds gained nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from stepmark.cli.plan import make_plan
from stepmark.cli.wiring import start
from stepmark.config import Flag, compose
from stepmark.engines import TransformersEngine
from stepmark.evals import sample_policy
from stepmark.statistics import paired_shares
from stepmark.store import RunFolder
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama
from stepmark.types import Sampling
from stepmark.verifiers import load_verifier

pytestmark = pytest.mark.slow

TASK = "arith?steps=2&max_start=6&max_change=5&product_share=0&worked_share=0.5"
SFT = (
    "algorithm.backend=sft",
    "algorithm.steps=450",
    "algorithm.learning_rate=4e-3",
    "algorithm.schedule=linear",
    "algorithm.warmup_steps=20",
    "algorithm.adam_beta2=0.98",
    "algorithm.log_entropy=false",
    "rollout.prompts_per_step=24",
)
PPO = (
    "algorithm.backend=ppo",
    "algorithm.steps=20",
    "algorithm.learning_rate=3e-4",
    "algorithm.critic_learning_rate=1e-3",
    "algorithm.critic_warmup_steps=2",
    "algorithm.beta=0.005",
    "algorithm.mu=2",
    "rollout.prompts_per_step=32",
    "rollout.group_size=8",
)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(folder: Path, model: Path, *sets: str) -> tuple[Path, list[dict[str, Any]]]:
    """The checkpoint after a run from a model in a folder, and the run's metrics."""
    common = ("rollout.max_tokens=32", "algorithm.save_every=none", "data.eval_limit=10")
    flags = {"model.policy": Flag("--model", str(model)), "data.task": Flag("--task", [TASK])}
    result = start(make_plan(compose([], [*common, *sets], flags)), folder)
    return result.final, [row for row in RunFolder.open(folder).metrics() if row["step"] > 0]


def right(model: Path) -> list[bool]:
    """Which of 400 held-out problems a model solves, greedily."""
    engine, task = TransformersEngine.load(model), load_task(TASK, "test")
    sampling = Sampling(temperature=0.0, max_tokens=32)
    graded = sample_policy(
        engine, engine.tokenizer, task, load_verifier("math"), sampling, limit=400
    )
    return [verdict.correct is True for _, verdict in graded]


def test_ppo_raises_the_accuracy_on_held_out_problems(tmp_path: Path) -> None:
    base = tmp_path / "base"
    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=0, layers=2, width=64).save_pretrained(base)
    tokenizer.save_pretrained(base)
    sft, _ = trained(tmp_path / "sft", base, *SFT)
    ppo, rows = trained(tmp_path / "ppo", sft, *PPO)
    both = Counter(zip(right(ppo), right(sft), strict=True))
    found = paired_shares(
        both[True, True], both[True, False], both[False, True], both[False, False]
    )
    assert found.difference > 0.05, "0.090 was reached"
    assert found.p < 0.01
    rewards = [row["reward"] for row in rows]
    assert statistics.fmean(rewards[-5:]) > statistics.fmean(rewards[:3]) + 0.1, "0.19 was reached"
    foreseen = [row["critic/explained_variance"] for row in rows]
    assert foreseen[0] == pytest.approx(0, abs=1e-6)
    assert statistics.fmean(foreseen[-5:]) > 0.03, "0.11 was reached"
