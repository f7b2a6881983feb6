"""Shared prompts: numbers and gradients of the plain path, whatever is mixed in a batch."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
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

from stepmark.errors import ConfigError
from stepmark.training import TrainingSample, token_logps
from stepmark.training.attention import takes_layouts
from stepmark.training.forward import micro_batches
from stepmark.training.layout import is_shared, lay_end_to_end
from stepmark.training.packing import pack_end_to_end
from stepmark.training.tolerances import GRADIENTS_FLOAT32, LOGPS_FLOAT32

WORDS = 41
ROPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
CPU = torch.device("cpu")


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
    small: dict[str, Any] = {
        "vocab_size": WORDS,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
    }
    config = GPT2Config(**small, bos_token_id=1, eos_token_id=2, initializer_range=0.2)
    return GPT2LMHeadModel(config).eval()


def sample(prompt: int, sampled: int, group: int, pair: int | None = None) -> TrainingSample:
    prompt_ids = tuple(1 + (group + place) % (WORDS - 1) for place in range(prompt))
    ids = tuple((3 * place + 5 * sampled + group) % WORDS for place in range(sampled))
    return TrainingSample(prompt_ids, ids, group, pair=pair)


# Out of order: shorter and longer than the prompt, of one length, of one token, one that is alone.
GROUPS = [
    sample(20, 3, 0),
    sample(12, 25, 1),
    sample(20, 3, 0),
    sample(5, 9, 2),
    sample(20, 1, 0),
    sample(12, 4, 1),
    sample(20, 30, 0),
    sample(1, 2, 3),
]

ALIKE = [sample(prompt, sampled, group) for prompt, group in ((9, 0), (9, 1), (9, 2), (6, 3))
         for sampled in (4, 12, 4, 1)]  # fmt: skip


def gradients(model: Any, samples: list[TrainingSample], layout: Any) -> tuple[Any, ...]:
    model.zero_grad()
    out = token_logps(model, samples, temperature=0.7, with_entropy=True, layout=layout)
    weights_N = torch.linspace(-1, 2, len(out.logps_N))
    (out.logps_N * weights_N).sum().backward()
    grads = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    return out, grads


@pytest.mark.parametrize("rows", [GROUPS, ALIKE], ids=["mixed", "alike"])
@pytest.mark.parametrize("layout", ["auto", "packed"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_shared_prompts_change_neither_log_probs_nor_gradients(
    name: str, layout: str, rows: list[TrainingSample]
) -> None:
    model = make(name)
    wanted, plain = gradients(model, rows, "padded")
    found, shared = gradients(model, rows, layout)
    assert takes_layouts(model.base_model)
    assert found.lengths == wanted.lengths
    assert (found.logps_N - wanted.logps_N).abs().max() <= 1e-5
    assert (found.entropies_N - wanted.entropies_N).abs().max() <= 1e-5
    largest = max(float(gradient.abs().max()) for gradient in plain.values())
    for key, gradient in shared.items():
        allowed = GRADIENTS_FLOAT32 * max(float(plain[key].abs().max()), 0.01 * largest)
        assert (gradient - plain[key]).abs().max() <= allowed, key


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_recomputed_activations_see_the_same_blocks(name: str) -> None:
    model = make(name)
    _, plain = gradients(model, GROUPS, "auto")
    model.activation_checkpointing_enable()
    for module in model.modules():
        module.training = hasattr(module, "gradient_checkpointing")
    _, again = gradients(model, GROUPS, "auto")
    for key, gradient in again.items():
        assert torch.allclose(gradient, plain[key], rtol=1e-5, atol=1e-6), key


def test_generation_is_the_same_before_and_after() -> None:
    model = make("llama")
    ids = torch.tensor([[1, 5, 9], [1, 7, 3]])
    before = model(input_ids=ids).logits
    token_logps(model, GROUPS)
    assert torch.equal(model(input_ids=ids).logits, before)


@pytest.mark.parametrize("name", ["mistral", "phimoe", "doge"])
def test_attention_that_blocks_do_not_do_is_told_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(name)
    with caplog.at_level(logging.WARNING, logger="stepmark"):
        padded = token_logps(model, GROUPS, layout="padded").logps_N
        assert torch.equal(token_logps(model, GROUPS).logps_N, padded)
        assert len(micro_batches(model, GROUPS, 60)) > 1
    told = [record.message for record in caplog.records if "not shared" in record.message]
    assert len(told) == 1
    assert "sliding_window" in told[0]


def test_a_config_that_limits_attention_is_refused_and_one_that_only_could_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits: tuple[tuple[dict[str, Any], str], ...] = (
        ({"attention_chunk_size": 8}, "attention_chunk_size"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "chunked_attention"),
    )
    for limit, said in limits:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="stepmark"):
            assert not takes_layouts(LlamaForCausalLM(LlamaConfig(**ROPE, **limit)).base_model)
        assert said in caplog.text
    free = {"use_sliding_window": False, "layer_types": ["full_attention"] * 2}
    config = Qwen2Config(**ROPE, **free)
    config.sliding_window = 4
    assert takes_layouts(Qwen2ForCausalLM(config).base_model)


def test_a_shared_prompt_is_computed_once() -> None:
    layout = lay_end_to_end([sample(20, 8, 0) for _ in range(4)], CPU, 1024)
    assert len(layout.ids_T) == 20 + 4 * 7
    apart = lay_end_to_end([sample(20, 8, 0) for _ in range(4)], CPU, 1024, share=False)
    assert len(apart.ids_T) == 4 * 27


def test_groups_of_one_shape_are_attended_to_at_once() -> None:
    layout = lay_end_to_end(ALIKE, CPU, 1 << 20)
    of_three, of_one = layout.blocks[:3], layout.blocks[3:]
    assert [(block.rows, block.length) for block in of_three] == [(3, 9), (6, 3), (3, 11)]
    assert [(block.rows, block.length) for block in of_one] == [(1, 6), (2, 3), (1, 11)]


def test_the_last_mlp_runs_only_where_a_sampled_token_is_predicted() -> None:
    model, rows = make("llama"), [sample(20, 8, 0) for _ in range(4)]
    token_logps(model, rows)
    seen: list[int] = []
    for layer in model.model.layers:
        layer.mlp.down_proj.register_forward_hook(lambda _, given, out: seen.append(out.shape[1]))
    token_logps(model, rows)
    assert seen == [20 + 4 * 7, 1 + 4 * 7]
    model.activation_checkpointing_enable()
    for layer in model.model.layers:
        layer.training = True
    seen.clear()
    token_logps(model, rows)
    assert seen == [48, 48]


@pytest.mark.parametrize(
    ("prompt", "completions", "width", "wanted"),
    [(150, 16, 896, True), (150, 16, 8, False), (1, 16, 896, False), (500, 1, 896, False)],
)
def test_a_prompt_is_shared_only_where_that_saves_work(
    prompt: int, completions: int, width: int, wanted: bool
) -> None:
    assert is_shared(prompt, [1000] * completions, width) is wanted


samples = st.lists(
    st.builds(
        sample,
        st.integers(1, 30),
        st.integers(1, 30),
        st.integers(0, 3),
        st.one_of(st.none(), st.integers(0, 4)),
    ),
    max_size=30,
)


@given(samples, st.integers(1, 120))
def test_every_sample_is_laid_out_once_and_predicted_from_the_token_before(
    rows: list[TrainingSample], width: int
) -> None:
    if not rows:
        return
    layout = lay_end_to_end(rows, CPU, width)
    assert sum(block.rows * block.length for block in layout.blocks) == len(layout.ids_T)
    assert layout.targets_N.tolist() == [token for row in rows for token in row.ids]
    before = [token for row in rows for token in (row.prompt_ids[-1], *row.ids[:-1])]
    assert layout.ids_T[layout.places_N].tolist() == before
    if layout.kept_K is not None:
        assert layout.kept_K.tolist() == sorted(set(layout.places_N.tolist()))
    at = [len(row.prompt_ids) - 1 + place for row in rows for place in range(len(row.ids))]
    assert layout.positions_T[layout.places_N].tolist() == at


@given(samples, st.integers(1, 120))
def test_micro_batches_hold_every_sample_once_and_keep_the_budget(
    rows: list[TrainingSample], budget: int
) -> None:
    packed = pack_end_to_end(rows, budget)
    assert sorted(id(row) for some in packed for row in some) == sorted(id(row) for row in rows)
    for some in packed:
        prompts = {row.prompt_ids for row in some}
        tokens = sum(len(row.ids) for row in some) + sum(len(prompt) for prompt in prompts)
        is_one_unit = len(some) == 1 or len({row.pair for row in some} - {None}) == 1
        assert tokens <= budget or is_one_unit


@given(samples, st.integers(1, 120))
def test_pairs_stay_together_in_every_micro_batch(rows: list[TrainingSample], budget: int) -> None:
    for some in pack_end_to_end(rows, budget):
        for pair in {row.pair for row in some} - {None}:
            members = [place for place, row in enumerate(some) if row.pair == pair]
            assert len(members) == sum(row.pair == pair for row in rows)
            assert members == list(range(members[0], members[0] + len(members)))


def test_a_group_above_the_budget_is_divided_with_its_prompt_repeated() -> None:
    parts = pack_end_to_end([sample(20, 10, 0) for _ in range(8)], 50)
    assert [len(part) for part in parts] == [3, 3, 2]


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="token budget"):
        pack_end_to_end([], 0)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_a_completion_of_two_tokens_has_a_single_query_behind_its_prompt(name: str) -> None:
    model, rows = make(name), [sample(20, 2, 0), sample(20, 2, 0), sample(20, 5, 0)]
    together = token_logps(model, rows)
    apart = token_logps(model, rows, layout="padded")
    assert (together.logps_N - apart.logps_N).abs().max() <= LOGPS_FLOAT32
