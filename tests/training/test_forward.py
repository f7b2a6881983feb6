"""Log-probs of sampled tokens: equal to the plain path, gradient included, for several models."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from stepmark.errors import ConfigError
from stepmark.training import TrainingSample, reference_logps, token_logps
from stepmark.training.forward import lay_out
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
SAMPLES = [
    TrainingSample((1, 5, 6), (7, 8, 2)),
    TrainingSample((1,), (9, 2)),
    TrainingSample((1, 3, 4, 5, 6, 7), (10, 11, 12, 13, 2)),
    TrainingSample((1, 2), (2,)),
]


def make(name: str) -> Any:
    torch.manual_seed(0)
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**ROPE)).eval()
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**ROPE)).eval()
    if name == "gemma2":
        return Gemma2ForCausalLM(Gemma2Config(**ROPE, head_dim=8)).eval()
    small = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**small, bos_token_id=1, eos_token_id=2)).eval()


def plainly(model: Any, sample: TrainingSample, temperature: float) -> torch.Tensor:
    logits_TV = model(input_ids=torch.tensor([[*sample.prompt_ids, *sample.ids]])).logits[0]
    logps_TV = torch.log_softmax(logits_TV.float() / temperature, -1)
    start = len(sample.prompt_ids) - 1
    return logps_TV[start:-1].gather(1, torch.tensor(sample.ids)[:, None])[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "gemma2"])
def test_log_probs_and_gradients_equal_the_plain_path(name: str, temperature: float) -> None:
    model = make(name)
    wanted = [plainly(model, sample, temperature) for sample in SAMPLES]
    loss = sum((part.square().sum() for part in wanted), torch.zeros(()))
    loss.backward()
    plain = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    model.zero_grad()
    out = token_logps(model, SAMPLES, temperature=temperature, head_chunk=3)
    out.logps_N.square().sum().backward()
    assert out.lengths == (3, 2, 5, 1)
    for given, other in zip(out.split(), wanted, strict=True):
        assert (given - other).abs().max() <= LOGPS_FLOAT32
    largest = max(float(gradient.abs().max()) for gradient in plain.values())
    for key, weight in model.named_parameters():
        worst = (weight.grad - plain[key]).abs().max()
        assert worst <= GRADIENTS_FLOAT32 * max(float(plain[key].abs().max()), 0.01 * largest), key


def test_a_head_that_cannot_be_separated_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    model = make("gemma2")
    with caplog.at_level(logging.WARNING, logger="stepmark"):
        token_logps(model, SAMPLES)
        token_logps(model, SAMPLES)
    assert [r.message for r in caplog.records if "full logits" in r.message] != []
    assert sum("full logits" in r.message for r in caplog.records) == 1


def test_rows_of_a_batch_do_not_touch_each_other() -> None:
    model = make("llama")
    together = token_logps(model, SAMPLES).split()
    for sample, logps in zip(SAMPLES, together, strict=True):
        assert torch.allclose(token_logps(model, [sample]).logps_N, logps, atol=LOGPS_FLOAT32)


def test_reference_log_probs_keep_the_given_order_and_the_training_flag() -> None:
    model = make("llama").train()
    found = reference_logps(model, SAMPLES, 0.7, token_budget=9)
    assert model.training
    for sample, logps in zip(SAMPLES, found, strict=True):
        assert logps.dtype == torch.float32
        assert not logps.requires_grad
        assert torch.allclose(logps, plainly(model, sample, 0.7), atol=LOGPS_FLOAT32)


def test_entropies_lie_between_zero_and_that_of_the_uniform() -> None:
    out = token_logps(make("llama"), SAMPLES, with_entropy=True)
    for entropies, length in zip(out.split_entropies(), out.lengths, strict=True):
        assert entropies.shape == (length,)
        assert bool(((entropies > 0) & (entropies <= torch.log(torch.tensor(WORDS)))).all())


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_without_log_probs_is_refused(temperature: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        token_logps(make("llama"), SAMPLES, temperature=temperature)


# (ids as a padded row, their length, mask): the sampled end token is trained, padding never is.
MASKS = [
    ([5, 6, 2, 0, 0], 3, [1, 1, 1, 0, 0]),
    ([5, 6, 7, 8, 9], 5, [1, 1, 1, 1, 1]),
    ([2, 0, 0, 0, 0], 1, [1, 0, 0, 0, 0]),
    ([5, 6, 2, 2, 2], 3, [1, 1, 1, 0, 0]),
]


def trained(rows: list[list[int]], lengths: list[int]) -> list[list[int]]:
    samples = [TrainingSample((1,), tuple(row[:n])) for row, n in zip(rows, lengths, strict=True)]
    out = lay_out(samples, torch.device("cpu"))
    mask = torch.zeros(len(rows), len(rows[0]), dtype=torch.long)
    mask[out.rows_N, out.places_N] = 1
    for row, place, target in zip(out.rows_N, out.places_N, out.targets_N, strict=True):
        assert rows[int(row)][int(place)] == int(target)
    return mask.tolist()


def test_the_sampled_end_token_is_trained_and_padding_is_not() -> None:
    rows, lengths, wanted = (list(column) for column in zip(*MASKS, strict=True))
    assert trained(rows, lengths) == wanted


def test_masks_agree_with_the_oracle_file() -> None:
    path = Path(os.environ.get("STEPMARK_DATA", "")) / ".." / "oracle" / "rl_oracle.json"
    if not path.is_file():
        pytest.skip("no oracle beside STEPMARK_DATA; the table above holds the same facts")
    cases = [c for c in json.loads(path.read_text())["cases"] if c["id"].startswith("mask/")]
    assert len(cases) >= 2
    for case in cases:
        rows, end = case["inputs"]["ids"], case["inputs"]["eos"]
        lengths = [row.index(end) + 1 if end in row else len(row) for row in rows]
        assert trained(rows, lengths) == case["expected"]["mask"]
