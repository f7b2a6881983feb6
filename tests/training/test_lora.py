"""Adapters: their gradients are peft's on every path, and nothing else of a model changes."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from stepmark.config.peft_table import PeftTable
from stepmark.errors import ConfigError, SetupError
from stepmark.training import TrainingSample, token_logps
from stepmark.training.adapter_files import load_adapter, restore_adapter, save_adapter
from stepmark.training.critic import make_critic, token_values
from stepmark.training.fingerprint import fingerprint
from stepmark.training.forward import micro_batches
from stepmark.training.lora import (
    adapt,
    base_of,
    copy_of,
    frozen_copy,
    is_adapted,
    layers_of,
    plain_weights,
    take_weights,
    targets_of,
    weights_of,
)
from stepmark.training.memory import shape_of
from stepmark.training.optimizer import adamw
from stepmark.training.precision import Precision, changed_share, precision_of, some_weights
from stepmark.training.tolerances import GRADIENTS_FLOAT32, LOGPS_BFLOAT16, LOGPS_FLOAT32

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
PROMPT = (1, 5, 6, 9, 12, 3, 4)
SAMPLES = [
    TrainingSample(PROMPT, (7, 8, 2), group=0),
    TrainingSample(PROMPT, (9, 2), group=0),
    TrainingSample(PROMPT, (10, 11, 12, 13, 4, 5, 6, 7, 2), group=0),
    TrainingSample((1, 3), (2,), group=1),
    TrainingSample((1, 3), (4, 3, 7, 2), group=1),
]
TABLE = PeftTable(rank=4, alpha=8.0)


def make(name: str) -> Any:
    torch.manual_seed(0)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**ROPE)).eval()
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**ROPE, tie_word_embeddings=True)).eval()
    small = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**small, bos_token_id=1, eos_token_id=2)).eval()


def moved(model: Any, scale: float = 0.2) -> Any:
    """The model after its adapters have learnt something."""
    torch.manual_seed(1)
    for weight in weights_of(model).values():
        weight.add_(torch.randn_like(weight), alpha=scale)
    return model


def adapted(name: str, table: PeftTable = TABLE) -> Any:
    return moved(adapt(make(name), table, seed=3, base=f"models/{name}"))


def loaded_by_peft(name: str, folder: Any) -> Any:
    from peft import PeftModel

    with warnings.catch_warnings():  # peft asks models for a name that newer releases renamed
        warnings.simplefilter("ignore", FutureWarning)
        return PeftModel.from_pretrained(make(name), str(folder), is_trainable=True).eval()


def plainly(model: Any, sample: TrainingSample) -> torch.Tensor:
    logits_TV = model(input_ids=torch.tensor([[*sample.prompt_ids, *sample.ids]])).logits[0]
    logps_TV = torch.log_softmax(logits_TV.float(), -1)
    start = len(sample.prompt_ids) - 1
    return logps_TV[start:-1].gather(1, torch.tensor(sample.ids)[:, None])[:, 0]


def gradients(model: Any) -> dict[str, torch.Tensor]:
    found = {name: weight.grad for name, weight in model.named_parameters()}
    return {name: grad.clone() for name, grad in found.items() if grad is not None}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("llama", ("all-linear",)),
        ("llama", ("lm_head", "o_proj")),
        ("qwen2", ("all-linear",)),
        ("gpt2", ("all-linear",)),
        ("gpt2", ("c_proj",)),
    ],
)
def test_gradients_of_adapters_are_those_of_plain_peft(name, names, tmp_path, caplog) -> None:
    model = adapted(name, PeftTable(rank=4, alpha=8.0, target_modules=names))
    save_adapter(model, tmp_path / "adapter")
    other = loaded_by_peft(name, tmp_path / "adapter")
    wanted = [plainly(other, sample) for sample in SAMPLES]
    torch.cat(wanted).square().sum().backward()
    plain = {key.removeprefix("base_model.model."): g for key, g in gradients(other).items()}
    with caplog.at_level(logging.WARNING, logger="stepmark"):
        assert len(micro_batches(model, SAMPLES, 1000)) == 1
        out = token_logps(model, SAMPLES, head_chunk=3, with_entropy=True)
    assert caplog.records == []  # the fast path takes it
    out.logps_N.square().sum().backward()
    for given, want in zip(out.split(), wanted, strict=True):
        assert (given - want).abs().max() <= LOGPS_FLOAT32
    found = gradients(model)
    assert found.keys() == plain.keys() == weights_of(model).keys()
    largest = max(float(grad.abs().max()) for grad in plain.values())
    for key, grad in found.items():
        worst = float((grad - plain[key]).abs().max())
        assert worst <= GRADIENTS_FLOAT32 * max(float(plain[key].abs().max()), 0.01 * largest), key


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_merged_weights_give_the_adapted_model_in_a_plain_folder(name, tmp_path) -> None:
    model = adapted(name)
    model.save_pretrained(tmp_path / "whole", state_dict=plain_weights(model))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    assert plain_weights(model).keys() == make(name).state_dict().keys()
    for sample in SAMPLES:
        assert (plainly(loaded, sample) - plainly(model, sample)).abs().max() <= LOGPS_FLOAT32
    base = plain_weights(model, merged=False)
    assert all(torch.equal(base[key], weight) for key, weight in make(name).state_dict().items())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_adapters_come_back_from_a_folder_bit_for_bit(name, tmp_path) -> None:
    model = adapted(name)
    save_adapter(model, tmp_path / "adapter")
    other = restore_adapter(make(name), tmp_path / "adapter")
    third = adapt(make(name), TABLE, seed=9, base="elsewhere")
    load_adapter(third, tmp_path / "adapter")
    for one in (other, third):
        found = weights_of(one)
        assert found.keys() == weights_of(model).keys()
        assert all(torch.equal(weight, found[key]) for key, weight in weights_of(model).items())
    assert base_of(other) == base_of(model)


def test_adapters_begin_as_nothing_and_are_drawn_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    plain = make("llama")
    torch.set_rng_state(before)
    one, two, three = (adapt(make("llama"), TABLE, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(plainly(one, SAMPLES[0]), plainly(plain, SAMPLES[0]))
    assert fingerprint(one) == fingerprint(two) != fingerprint(three)
    assert base_of(one).fingerprint == base_of(three).fingerprint == fingerprint(plain)
    torch.manual_seed(5)
    untouched = torch.rand(1)
    model = make("llama")
    torch.manual_seed(5)
    adapt(model, TABLE)
    assert torch.equal(torch.rand(1), untouched)
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_all_linear_is_every_linear_layer_but_the_head(name) -> None:
    model = make(name)
    found = {key.rpartition(".")[2] for key in targets_of(model, PeftTable())}
    rope = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert found == ({"c_attn", "c_proj", "c_fc"} if name == "gpt2" else rope)


def test_a_copy_shares_what_does_not_learn_and_trains_by_itself() -> None:
    model = adapted("llama")
    other = copy_of(model)
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    for key, weight in mine.items():
        assert (weight is theirs[key]) == (not weight.requires_grad)
    frozen = frozen_copy(model)
    assert not any(layer.disable_adapters for layer in layers_of(frozen).values())
    moved(model)
    take_weights(other, weights_of(model))
    assert fingerprint(other) == fingerprint(model) != fingerprint(frozen)
    with pytest.raises(KeyError, match="lack"):
        take_weights(other, {})


def test_a_critic_beside_adapters_shares_the_base_and_learns_apart() -> None:
    model = adapted("llama")
    critic = make_critic(model)
    kept = [key for key, weight in critic.named_parameters() if weight.requires_grad]
    assert all(".lora_" in key or key.startswith("head.") for key in kept)
    assert weights_of(critic).keys() == set(kept)
    torch.nn.init.normal_(critic.head.weight)
    token_values(critic, SAMPLES).square().sum().backward()
    assert gradients(critic).keys() == set(kept)
    assert gradients(model) == {}
    shared = make_critic(model, shared=True)
    assert weights_of(shared).keys() == {"head.weight", "head.bias"}
    torch.nn.init.normal_(shared.head.weight)
    token_values(shared, SAMPLES).square().sum().backward()
    assert gradients(model).keys() == weights_of(model).keys()


def of(model: Any, precision: Precision) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    with precision.forward(), precision.recomputing(model):
        loss = -token_logps(model, SAMPLES).logps_N.sum()
    loss.backward()
    return gradients(model)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_layers_computed_again_give_equal_gradients_and_autocast_near_ones(name) -> None:
    model = adapted(name)
    plain = of(model, Precision())
    again = of(model, precision_of(model, "none", checkpointing=True))
    cast = of(model, precision_of(model, "bfloat16"))
    norm = sum(float(grad.square().sum()) for grad in plain.values()) ** 0.5
    for found, allowed in ((again, 1e-6), (cast, 5e-2)):
        assert found.keys() == plain.keys()
        gap = sum(float((found[key] - grad).square().sum()) for key, grad in plain.items()) ** 0.5
        assert gap <= allowed * norm
    assert all(grad.dtype == torch.float32 for grad in cast.values())


@pytest.mark.parametrize("critic", [False, True])
def test_adapters_of_a_bfloat16_base_are_float32_and_move_at_small_rates(critic) -> None:
    model = moved(adapt(make("llama").bfloat16(), TABLE))
    learner = make_critic(model) if critic else model
    if critic:
        torch.nn.init.normal_(learner.head.weight)
    assert {weight.dtype for weight in weights_of(learner).values()} == {torch.float32}
    base = plain_weights(model, merged=False)
    assert {weight.dtype for weight in base.values()} == {torch.bfloat16}
    out = token_values(learner, SAMPLES) if critic else token_logps(model, SAMPLES).logps_N
    out.square().sum().backward()
    before = some_weights(learner)
    adamw(learner, learning_rate=1e-5).step()
    assert changed_share(before, learner) > 0.99
    after = plain_weights(model, merged=False)
    assert all(torch.equal(after[key], weight) for key, weight in base.items())
    if not critic:
        wanted = torch.cat([plainly(model, sample) for sample in SAMPLES])
        gap = (token_logps(model, SAMPLES).logps_N - wanted).abs().mean()
        assert gap <= LOGPS_BFLOAT16


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_the_estimate_counts_the_numbers_of_the_adapters(name, tmp_path) -> None:
    model = adapted(name)
    model.config.save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path), TABLE)
    assert shape is not None
    assert shape.adapters == sum(weight.numel() for weight in weights_of(model).values())


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("llama", ("q_prj",), r"names 'q_prj', and no linear layer .* Did you mean 'q_proj'\?"),
        ("llama", ("embed_tokens",), "no linear layer of a LlamaForCausalLM is called that"),
        ("gpt2", ("lm_head",), "whose weights are those of the embedding"),
    ],
)
def test_layers_that_cannot_have_adapters_are_refused(name, targets, message) -> None:
    with pytest.raises(ConfigError, match=message):
        adapt(make(name), PeftTable(target_modules=targets))


def test_a_model_with_adapters_gets_no_second_ones() -> None:
    with pytest.raises(ConfigError, match="has adapters already"):
        adapt(adapted("llama"), TABLE)


def test_without_peft_the_pip_line_is_given(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SetupError, match=r"pip install 'stepmark\[peft\]'"):
        adapt(make("llama"), TABLE)
    monkeypatch.delitem(sys.modules, "peft")
    assert not is_adapted(make("llama"))
