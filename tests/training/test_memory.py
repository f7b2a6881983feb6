from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stepmark.training.forward import token_logps
from stepmark.training.memory import memory_rows, shape_of
from stepmark.training.sample import TrainingSample


def saved(folder: Path, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        **more,
    )
    model = LlamaForCausalLM(config).float().eval()
    config.save_pretrained(folder)
    return model


def test_weights_are_counted_exactly_also_with_a_tied_head(tmp_path) -> None:
    for tied in (False, True):
        model = saved(tmp_path / str(tied), tie_word_embeddings=tied)
        shape = shape_of(str(tmp_path / str(tied)))
        assert shape is not None
        assert shape.weights == sum(weight.numel() for weight in model.parameters())
        assert shape.kv_width == 32


def held(model, samples) -> int:
    """Bytes that autograd keeps for the backward pass, weights left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    seen: dict[int, int] = {}
    keep: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
            keep.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        token_logps(model, samples).logps_N.sum().backward()
    return sum(seen.values())


def test_activations_are_estimated_within_a_factor_of_two(tmp_path) -> None:
    model = saved(tmp_path)
    shape = shape_of(str(tmp_path))
    assert shape is not None
    samples = [TrainingSample((1, 2, 3), tuple(range(3, 60)), group=n) for n in range(6)]
    tokens = sum(sample.length - 1 for sample in samples)
    token_logps(model, samples)  # the first pass also tries what layouts the model takes
    rows = memory_rows(
        shape, dtype="float32", is_cast=False, checkpointing=False, microbatch_tokens=tokens
    )
    sizes = {row.what: row.size for row in rows}
    ratio = sizes["activations of a micro-batch"] / held(model, samples)
    assert 0.5 < ratio < 2, ratio


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_less_is_held_with_checkpointing_and_more_with_frozen_models_and_a_critic(
    tmp_path, dtype
) -> None:
    saved(tmp_path)
    shape = shape_of(str(tmp_path))
    assert shape is not None
    common = {"dtype": dtype, "is_cast": False, "microbatch_tokens": 4096}

    def total(**more) -> int:
        given = {"checkpointing": False, **common, **more}
        return sum(row.size for row in memory_rows(shape, **given))

    plain = total()
    assert total(checkpointing=True) < plain
    assert plain < total(frozen=1) < total(frozen=2)
    assert plain < total(critic="shared") + 1 <= total(critic="own")
    assert plain < total(sampled_tokens=1024)


def test_a_model_that_is_not_here_has_no_estimate() -> None:
    assert shape_of("someone/some-model") is None


def test_a_config_that_is_not_known_has_no_estimate_and_no_traceback(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "of-my-own"}')
    assert shape_of(str(tmp_path)) is None
