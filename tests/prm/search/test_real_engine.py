"""A search through the transformers engine: its ids and log-probs are those of the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stepmark.engines import TransformersEngine, render
from stepmark.prm import load_scorer
from stepmark.prm.search import SearchSettings, search
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama
from stepmark.types import Sampling

ENDS = ("\n", "0", "1", "2", "3", "a", "e")
"""Texts that a model without any training writes often enough."""


@pytest.fixture(scope="module")
def engine() -> Any:
    tokenizer = arith_tokenizer()
    model = tiny_llama(tokenizer, seed=0, layers=1, width=32, initializer_range=0.2).eval()
    return TransformersEngine(model, tokenizer)


@pytest.fixture(scope="module")
def prompts(engine: Any) -> list[Any]:
    task = load_task("arith?size=2", "test")
    return [render(problem, engine.tokenizer, task.prompt) for problem in task.problems]


def test_log_probs_of_a_beam_are_the_models_own_over_all_of_its_ids(
    engine: Any, prompts: list[Any]
) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=24)
    settings = SearchSettings(
        n=4, width=2, sampling=sampling, max_steps=5, step_end=ENDS, aggregation="mean"
    )
    rows = search(engine, engine.tokenizer, load_scorer("arith-steps"), prompts, settings)
    assert max(row.rounds for row in rows) > 2
    for row in rows:
        for one in row.candidates:
            ids, known = one.rollout.ids, row.prompt.ids
            with torch.no_grad():
                logits = engine.model(torch.tensor([[*known, *ids]])).logits[0, len(known) - 1 : -1]
            logps = logits.log_softmax(-1)[range(len(ids)), list(ids)]
            assert one.rollout.logps == pytest.approx(logps.tolist(), abs=1e-4)
            decoded = engine.tokenizer.decode(ids, skip_special_tokens=True)
            assert decoded.startswith(one.rollout.text)


def test_one_greedy_beam_is_the_greedy_sample_of_the_model(engine: Any, prompts: list[Any]) -> None:
    greedy = Sampling(temperature=0.0, max_tokens=20)
    settings = SearchSettings(n=1, width=1, sampling=greedy, step_end=ENDS)
    rows = search(engine, engine.tokenizer, load_scorer("arith-steps"), prompts, settings)
    groups = engine.generate(prompts, 1, greedy, 0)
    plain = {group.prompt.problem.id: group.rollouts[0] for group in groups}
    for row in rows:
        assert row.best.rollout.ids == plain[row.prompt.problem.id].ids
        assert row.best.rollout.finish == plain[row.prompt.problem.id].finish
