"""Two ways to decode a batch, one distribution: prompts held once, and the model's own cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DogeConfig,
    DogeForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from stepmark.engines.padded import PaddedPrompts
from stepmark.engines.sharing import SharedPrompts, can_share

WORDS = 41
ROPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LATENT: dict[str, Any] = {
    **ROPE,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
"""Keys of 12 numbers a head, values of 8."""
UNEQUAL = ((5, 9, 3, 3, 8), (7,), (4, 4, 12, 30, 2, 6, 1, 9, 9))
EQUAL = ((5, 9, 3), (7, 1, 1), (4, 4, 12))
NESTED = ((5, 9), (5, 9, 3, 3, 8), (5, 9, 3))
"""Prompts that begin one another."""


def make(name: str) -> Any:
    torch.manual_seed(0)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**ROPE)).eval()
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**ROPE)).eval()
    if name == "mistral":
        return MistralForCausalLM(MistralConfig(**ROPE, sliding_window=4)).eval()
    if name == "phimoe":
        return PhimoeForCausalLM(PhimoeConfig(**ROPE, num_local_experts=4, sliding_window=4)).eval()
    if name == "doge":
        return DogeForCausalLM(DogeConfig(**ROPE, sliding_window=4)).eval()
    if name == "deepseek-v2":
        return DeepseekV2ForCausalLM(DeepseekV2Config(**LATENT)).eval()
    if name == "deepseek-v3":
        return DeepseekV3ForCausalLM(DeepseekV3Config(**LATENT)).eval()
    small: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = GPT2Config(vocab_size=WORDS, **small, initializer_range=0.2)
    return GPT2LMHeadModel(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("prompts", [UNEQUAL, EQUAL, NESTED], ids=["unequal", "equal", "nested"])
@pytest.mark.parametrize("source", [[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2], [0, 1, 2]])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "deepseek-v2", "deepseek-v3"])
def test_both_ways_give_the_same_logits_also_when_rows_leave(
    name: str, source: list[int], prompts: tuple[tuple[int, ...], ...]
) -> None:
    model = make(name)
    assert can_share(model)
    ways = [kind(model, prompts, source, 12) for kind in (SharedPrompts, PaddedPrompts)]
    shared_BV, padded_BV = (way.read() for way in ways)
    for step in range(9):
        assert (shared_BV - padded_BV).abs().max() <= 1e-4
        if step in (3, 6):
            kept_B = torch.arange(1, len(shared_BV))
            for way in ways:
                way.keep(kept_B)
            shared_BV = shared_BV[kept_B]
        tokens_B = shared_BV.topk(3).indices[torch.arange(len(shared_BV)), step % 3]
        shared_BV, padded_BV = (way.go_on(tokens_B) for way in ways)


def test_a_prompt_is_held_once_for_all_its_rows() -> None:
    batch = SharedPrompts(make("llama"), EQUAL, [0, 0, 0, 0, 1, 2], 12)
    with torch.no_grad():
        batch.read()
    assert [tuple(some.shape) for some in batch.layers[0].shared] == [(3, 2, 3, 8)] * 2
    batch.keep(torch.tensor([0, 5]))
    assert [tuple(some.shape) for some in batch.layers[0].shared] == [(2, 2, 3, 8)] * 2
    assert [tuple(some.shape) for some in batch.layers[0].own] == [(2, 2, 12, 8)] * 2


@torch.no_grad()
@pytest.mark.parametrize(
    ("prompts", "read"), [(UNEQUAL, 15), (NESTED, 5), ((*NESTED, (5,), (5, 8)), 7)]
)
def test_a_prompt_that_begins_another_is_read_with_it(
    prompts: tuple[tuple[int, ...], ...], read: int
) -> None:
    batch = SharedPrompts(make("llama"), prompts, list(range(len(prompts))), 4)
    batch.read()
    assert batch.tokens_read == read
    padded = PaddedPrompts(make("llama"), prompts, list(range(len(prompts))), 4)
    padded.read()
    assert padded.tokens_read == sum(map(len, prompts))


@torch.no_grad()
@pytest.mark.parametrize("name", ["mistral", "phimoe", "doge"])
def test_a_window_is_kept_to_also_where_only_the_mask_knows_of_it(name: str) -> None:
    model, rows = make(name), [list(ids) for ids in UNEQUAL]
    assert not can_share(model)
    batch = PaddedPrompts(model, UNEQUAL, [0, 1, 2], 12)
    given_BV = batch.read()
    for step in range(9):
        alone = [model(input_ids=torch.tensor([row])).logits[0, -1] for row in rows]
        assert (given_BV - torch.stack(alone)).abs().max() <= 1e-4
        tokens_B = given_BV.topk(3).indices[:, step % 3]
        rows = [[*row, int(token)] for row, token in zip(rows, tokens_B, strict=True)]
        given_BV = batch.go_on(tokens_B)


def test_a_model_that_a_step_does_not_suit_is_decoded_by_its_own_cache_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, told = make("llama"), "prompts are not held once"
    own = model.model.forward

    def shy_of_single_tokens(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].shape[1] == 1:
            raise ValueError("one token")
        return own(*args, **kwargs)

    monkeypatch.setattr(model.model, "forward", shy_of_single_tokens)
    with caplog.at_level("WARNING", logger="stepmark"):
        assert [can_share(model) for _ in range(2)] == [False, False]
    assert [told in record.message for record in caplog.records] == [True]


def test_what_cannot_hold_prompts_once_is_decoded_by_its_own_cache() -> None:
    assert not can_share(make("mistral"))
    assert not can_share(make("llama").to(torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not can_share(make("llama"))
