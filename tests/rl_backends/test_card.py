from __future__ import annotations

import json

import pytest

from stepmark.errors import ConfigError
from stepmark.rl_backends import Grpo, GrpoConfig, Sft, SftConfig
from stepmark.training.checkpoint import fault


def evaluate(policy, step):
    return {"accuracy": step / 8}


def test_final_and_best_are_plain_folders_with_a_card_and_a_generation_config(
    bandit, tmp_path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    run = bandit(tmp_path / "run")
    result = run.train(Grpo(GrpoConfig(steps=2, save_every=1)), evaluate=evaluate)
    for folder, step in ((result.final, 2), (result.best, result.best_step)):
        AutoModelForCausalLM.from_pretrained(folder)
        AutoTokenizer.from_pretrained(folder)
        sampling = GenerationConfig.from_pretrained(folder)
        assert "_from_model_config" not in (folder / "generation_config.json").read_text()
        assert sampling.max_new_tokens == run.rollout.max_tokens
        assert (sampling.temperature, sampling.do_sample) == (1.0, True)
        assert sampling.eos_token_id == run.policy.tokenizer.eos_token_id
        card = (folder / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: transformers\n")
        assert f"after step {step}" in card
        assert "| accuracy | 0.25 " in card or "| accuracy |  0.25" in card
        assert str(tmp_path) not in card
    assert "| kind " in (result.final / "README.md").read_text(), "the settings of the run"
    assert "| reward " in (result.final / "README.md").read_text(), "its metrics"
    assert fault(result.final) is None, "the card is among the hashed files"
    assert not (tmp_path / "run/checkpoints/step-000001/README.md").exists()


def test_a_policy_trained_without_verifiers_has_a_card_too(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    result = run.train(Sft(SftConfig(steps=1)))
    assert "Held-out" not in (result.final / "README.md").read_text()


def test_seconds_of_marking_are_in_the_timings_and_none_in_the_metrics(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.train(Grpo(GrpoConfig(steps=2)))
    for row in run.folder.timings():
        assert 0 <= row["marking_hidden_s"] <= row["marking_s"] < 60
        assert row["tokens_per_s"] > 0
    assert not any(name.endswith("_s") for row in run.folder.metrics() for name in row)


def test_a_prompt_with_two_bos_is_refused_before_anything_is_learnt(bandit, tmp_path) -> None:
    from dataclasses import replace

    run = bandit(tmp_path / "run")
    run.policy.tokenizer.bos_token = "a"
    bos = run.policy.tokenizer.bos_token_id
    prompts = run.train.__globals__["bandit_prompts"](run.policy)

    def doubled(step):
        return [replace(one, ids=(bos, bos, *one.ids)) for one in prompts(step)]

    with pytest.raises(ConfigError, match=r"begins with [23] BOS tokens"):
        run.train(Grpo(GrpoConfig(steps=1)), prompts=doubled)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text()) is not None


def test_a_clock_counts_as_hidden_what_nobody_waited_for() -> None:
    from stepmark.rl_backends.clock import MarkingClock

    clock = MarkingClock()
    assert clock.timed(lambda text: text.upper())("a") == "A"
    clock.marking_s, clock.waiting_s = 3.0, 1.0
    assert clock.take() == {"marking_s": 3.0, "marking_hidden_s": 2.0}
    assert clock.take() == {"marking_s": 0.0, "marking_hidden_s": 0.0}
