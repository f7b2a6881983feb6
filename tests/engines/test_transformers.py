"""The engine: ids in, ids out; a rollout depends on its prompt, sampling and seed, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from stepmark import ConfigError, Engine, EngineError, Problem, Prompt, Sampling
from stepmark.engines import TransformersEngine, render
from stepmark.seeds import derive_seed
from stepmark.tasks.arith_model import arith_tokenizer
from stepmark.tasks.prompts import PromptTemplate
from stepmark.training import TrainingSample, reference_logps
from stepmark.training.tolerances import LOGPS_FLOAT32

TOKENIZER: Any = arith_tokenizer()
WORDS = len(TOKENIZER)
TEXTS = (
    "Zoe has 15 coins.",
    "Zoe has 3 coins. Zoe buys 2 more.",
    "7",
    "How many coins?",
    "12 + 30",
)
SHORT = Sampling(max_tokens=5)
PLAIN = PromptTemplate("plain")
PROMPTS = [render(Problem(f"t/{i}", text, None), TOKENIZER, PLAIN) for i, text in enumerate(TEXTS)]


def make(name: str = "llama", limit: int = 64) -> Any:
    torch.manual_seed(0)
    ends = {"bos_token_id": TOKENIZER.bos_token_id, "eos_token_id": TOKENIZER.eos_token_id}
    if name == "gpt2":
        small = {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}
        return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=limit, **small, **ends))
    kind, config = {
        "llama": (LlamaForCausalLM, LlamaConfig),
        "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    }[name]
    return kind(
        config(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=limit,
            initializer_range=0.2,
            pad_token_id=0,
            **ends,
        )
    ).eval()


def ids_of(engine: TransformersEngine, sampling: Sampling, n: int = 3, seed: int = 0) -> Any:
    return {
        (group.prompt.problem.id, rollout.index): rollout.ids
        for group in engine.generate(PROMPTS, n, sampling, seed)
        for rollout in group.rollouts
    }


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_sampler_log_probs_are_those_of_the_forward_pass(name: str, temperature: float) -> None:
    model = make(name).eval()
    engine = TransformersEngine(model, TOKENIZER, batch_size=4)
    groups = list(engine.generate(PROMPTS, 3, Sampling(temperature, max_tokens=12), 0))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    samples = [TrainingSample(rollout.prompt.ids, rollout.ids) for rollout in rollouts]
    for rollout, logps in zip(
        rollouts, reference_logps(model, samples, temperature or 1.0, 400), strict=True
    ):
        assert (torch.tensor(rollout.logps) - logps).abs().max() <= LOGPS_FLOAT32


def test_every_prompt_gets_its_group_in_order_of_index() -> None:
    engine = TransformersEngine(make(), TOKENIZER, batch_size=4)
    assert isinstance(engine, Engine)
    groups = list(engine.generate([*PROMPTS, PROMPTS[0]], 3, Sampling(max_tokens=5), 0))
    assert sorted(g.prompt.problem.id for g in groups) == sorted(
        ["t/0"] + [f"t/{i}" for i in range(5)]
    )
    for group in groups:
        assert [rollout.index for rollout in group.rollouts] == [0, 1, 2]
        for rollout in group.rollouts:
            assert rollout.seed == derive_seed(0, group.prompt.problem.id, rollout.index)
            assert 1 <= len(rollout.ids) <= 5


@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
def test_the_batch_does_not_change_the_rollouts(batch_size: int) -> None:
    model, sampling = make(), Sampling(max_tokens=16)
    wanted = ids_of(TransformersEngine(model, TOKENIZER, batch_size=15), sampling)
    assert ids_of(TransformersEngine(model, TOKENIZER, batch_size=batch_size), sampling) == wanted


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_prompts_that_begin_one_another_are_read_once_and_draw_what_they_draw_alone(
    name: str,
) -> None:
    ids = (5, 9, 3, 3, 8, 11, 4, 12)
    nested = [
        Prompt(Problem(f"n/{place}", "n", None), ids[:end], "n")
        for place, end in enumerate((2, 8, 5, 5, 3))
    ]
    engine = TransformersEngine(make(name), TOKENIZER)
    sampling = Sampling(max_tokens=12)
    groups = list(engine.generate([*PROMPTS, *nested], 2, sampling, seed=3))
    own = {prompt.ids for prompt in PROMPTS}
    assert engine.tokens_read == sum(map(len, own)) + len(ids)
    for group in groups:
        for rollout in group.rollouts:
            again = engine.regenerate(group.prompt, rollout.index, sampling, seed=3)
            assert again.ids == rollout.ids


def test_a_rollout_remade_alone_has_the_same_ids() -> None:
    engine, sampling = TransformersEngine(make(), TOKENIZER), Sampling(0.9, max_tokens=16)
    for group in engine.generate(PROMPTS, 3, sampling, seed=5):
        for rollout in group.rollouts:
            again = engine.regenerate(group.prompt, rollout.index, sampling, seed=5)
            assert (again.ids, again.seed, again.text) == (rollout.ids, rollout.seed, rollout.text)


def test_another_seed_and_another_index_give_other_rollouts() -> None:
    engine, sampling = TransformersEngine(make(), TOKENIZER), Sampling(max_tokens=16)
    first, second = ids_of(engine, sampling, seed=0), ids_of(engine, sampling, seed=1)
    assert first != second
    assert len({first["t/0", index] for index in range(3)}) == 3


def test_greedy_is_the_argmax_of_plain_forward_passes() -> None:
    model = make()
    engine = TransformersEngine(model, TOKENIZER)
    for group in engine.generate(PROMPTS, 1, Sampling(0.0, max_tokens=8), 0):
        ids = list(group.prompt.ids)
        for token in group.rollouts[0].ids:
            with torch.no_grad():
                assert token == int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)


def favour(model: Any, token: int, by: float) -> Any:
    """The model with a head that likes one token that much more."""
    head = torch.nn.Linear(32, WORDS)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight)
        head.bias.zero_()
        head.bias[token] = by
    model.lm_head = head
    return model


def test_the_sampled_end_token_is_part_of_the_ids_and_not_of_the_text() -> None:
    model = favour(make(), TOKENIZER.eos_token_id, 100.0)
    for group in TransformersEngine(model, TOKENIZER).generate(PROMPTS, 2, SHORT, 0):
        for rollout in group.rollouts:
            assert rollout.ids == (TOKENIZER.eos_token_id,)
            assert (rollout.text, rollout.finish) == ("", "stop")


def test_every_end_token_of_the_generation_config_ends_a_completion() -> None:
    token = TOKENIZER.convert_tokens_to_ids("7")
    model = favour(make(), token, 100.0)
    model.generation_config.eos_token_id = [TOKENIZER.eos_token_id, token]
    group = next(TransformersEngine(model, TOKENIZER).generate(PROMPTS, 1, SHORT, 0))
    assert (group.rollouts[0].ids, group.rollouts[0].finish) == ((token,), "stop")


def test_running_out_of_tokens_is_a_length_finish_also_behind_an_early_end() -> None:
    model = favour(make(), TOKENIZER.eos_token_id, 2.5)
    engine = TransformersEngine(model, TOKENIZER)
    finishes: set[str] = set()
    for group in engine.generate(PROMPTS, 8, Sampling(max_tokens=6), 0):
        for rollout in group.rollouts:
            finishes.add(rollout.finish)
            ended = rollout.ids[-1] == TOKENIZER.eos_token_id
            assert rollout.finish == ("stop" if ended else "length")
            assert TOKENIZER.eos_token_id not in rollout.ids[:-1]
            assert ended or len(rollout.ids) == 6
    assert finishes == {"stop", "length"}


def test_a_stop_string_ends_the_completion_and_is_cut_from_the_text() -> None:
    engine, free = TransformersEngine(make(), TOKENIZER), Sampling(max_tokens=24)
    wanted = {
        (g.prompt.problem.id, r.index): r
        for g in engine.generate(PROMPTS, 3, free, 0)
        for r in g.rollouts
    }
    text = next(r.text for r in wanted.values() if len(r.text) > 12)
    stop = text[6:9]
    stopped = 0
    for group in engine.generate(PROMPTS, 3, Sampling(max_tokens=24, stop=(stop,)), 0):
        for rollout in group.rollouts:
            whole = wanted[group.prompt.problem.id, rollout.index]
            assert rollout.ids == whole.ids[: len(rollout.ids)]
            assert stop not in rollout.text
            assert whole.text.startswith(rollout.text)
            if stop in whole.text:
                stopped += 1
                assert rollout.finish == "stop"
                assert stop in TOKENIZER.decode(rollout.ids, skip_special_tokens=True)
    assert stopped


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-9}])
def test_a_cut_to_one_token_is_greedy_with_log_probs_of_the_whole(cut: dict[str, Any]) -> None:
    engine = TransformersEngine(make(), TOKENIZER)
    assert ids_of(engine, Sampling(max_tokens=8, **cut)) == ids_of(
        engine, Sampling(0.0, max_tokens=8)
    )
    rollout = engine.regenerate(PROMPTS[0], 0, Sampling(max_tokens=8, **cut), 0)
    assert max(rollout.logps) < 0


def test_the_training_flag_is_back_whenever_a_group_is_handed_out() -> None:
    model = make().train()
    for _ in TransformersEngine(model, TOKENIZER, batch_size=4).generate(
        PROMPTS, 2, Sampling(max_tokens=4), 0
    ):
        assert model.training
        assert torch.is_grad_enabled()
    assert model.training


def test_sync_notes_the_version_and_copies_other_weights() -> None:
    engine, other = TransformersEngine(make(), TOKENIZER), favour(make(), 7, 0.0)
    engine.sync(engine.model, 3)
    assert engine.regenerate(PROMPTS[0], 0, Sampling(max_tokens=2), 0).policy_version == 3
    with pytest.raises(EngineError, match="do not fit"):
        engine.sync(other, 4)
    trained = make()
    with torch.no_grad():
        trained.lm_head.weight.mul_(-1)
    engine.sync(trained, 4)
    assert torch.equal(engine.model.lm_head.weight, trained.lm_head.weight)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.generate(PROMPTS, 1, Sampling(), 0)


@pytest.mark.parametrize(
    ("sampling", "n", "words"),
    [
        (Sampling(temperature=-0.1), 1, "temperature is -0.1"),
        (Sampling(max_tokens=0), 1, "max_tokens is 0"),
        (Sampling(top_p=0.0), 1, "top_p is 0"),
        (Sampling(top_k=-1), 1, "top_k is -1"),
        (Sampling(stop=("",)), 1, "empty"),
        (Sampling(max_tokens=2), 0, "n is 0"),
        (Sampling(max_tokens=62), 1, "limit is 64"),
    ],
)
def test_what_cannot_be_sampled_is_refused_before_the_first_token(
    sampling: Sampling, n: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        TransformersEngine(make(), TOKENIZER).generate(PROMPTS, n, sampling, 0)


def test_ids_of_another_tokenizer_are_refused() -> None:
    prompt = Prompt(Problem("x", "?", None), (1, WORDS), "?")
    with pytest.raises(EngineError, match="own tokenizer"):
        TransformersEngine(make(), TOKENIZER).generate([prompt], 1, Sampling(max_tokens=2), 0)
