"""A real model: SmolLM2-135M-Instruct speaks, its log-probs agree, and its prompt has one BOS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from stepmark import Problem, Sampling
from stepmark.engines import TransformersEngine, render
from stepmark.tasks.prompts import PromptTemplate
from stepmark.training.tolerances import LOGPS_FLOAT32

pytestmark = pytest.mark.slow
PROBLEM = Problem("s/1", "What is 2+3?", "5")


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> TransformersEngine:
    return TransformersEngine.load(smollm2, device="cpu")


def test_the_chat_prompt_has_one_bos_in_front(engine: TransformersEngine) -> None:
    prompt = render(PROBLEM, engine.tokenizer, PromptTemplate("t", chat="always"))
    bos = engine.tokenizer.bos_token_id
    # Its BOS is <|im_start|>, which also opens every turn of a chat: one in front, none doubled.
    assert prompt.ids[0] == bos
    assert all(pair != (bos, bos) for pair in zip(prompt.ids, prompt.ids[1:], strict=False))
    assert prompt.ids.count(bos) == prompt.text.count("<|im_start|>")
    wanted = engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": PROBLEM.text}], add_generation_prompt=True, return_dict=False
    )
    assert list(prompt.ids) == wanted


def test_it_answers_a_sum_and_ends_by_itself(engine: TransformersEngine) -> None:
    prompt = render(PROBLEM, engine.tokenizer, PromptTemplate("t", chat="always"))
    rollout = engine.regenerate(prompt, 0, Sampling(0.0, max_tokens=64), 0)
    assert re.search(r"\b5\b", rollout.text), rollout.text
    assert rollout.finish == "stop"
    assert "<|im_end|>" not in rollout.text


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_log_probs_agree_with_a_plain_forward(
    engine: TransformersEngine, temperature: float
) -> None:
    problems = [PROBLEM, Problem("s/2", "Name three prime numbers below ten, please.", None)]
    prompts = [render(one, engine.tokenizer, PromptTemplate("t")) for one in problems]
    for group in engine.generate(prompts, 2, Sampling(temperature, max_tokens=24), 0):
        for rollout in group.rollouts:
            ids = torch.tensor([[*group.prompt.ids, *rollout.ids]])
            with torch.no_grad():
                logits_TV = engine.model(input_ids=ids).logits[0, len(group.prompt.ids) - 1 : -1]
            logps_TV = torch.log_softmax(logits_TV.float() / temperature, -1)
            wanted = logps_TV.gather(1, torch.tensor(rollout.ids)[:, None])[:, 0]
            assert (torch.tensor(rollout.logps) - wanted).abs().max() <= LOGPS_FLOAT32
