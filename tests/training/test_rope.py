"""Positions that change with the longest row of a call: only up to where they do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

from stepmark import ConfigError, Problem, Prompt, Sampling
from stepmark.engines import TransformersEngine
from stepmark.tasks.arith_model import arith_tokenizer
from stepmark.training import TrainingSample, token_logps
from stepmark.training.forward import hidden_states
from stepmark.training.rope import room
from stepmark.training.tolerances import LOGPS_FLOAT32

TOKENIZER: Any = arith_tokenizer()
SMALL: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "bos_token_id": TOKENIZER.bos_token_id,
    "eos_token_id": TOKENIZER.eos_token_id,
    "pad_token_id": 0,
}
LONG: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "factor": 8.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
}
DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
SHORT = TrainingSample((5, 6, 7, 8), (3, 4, 5))
FULL = TrainingSample((9,) * 6, tuple(range(1, 11)))
BEYOND = TrainingSample((9,) * 7, tuple(range(1, 11)))


def make(name: str) -> Any:
    torch.manual_seed(0)
    if name == "longrope":
        sizes: dict[str, Any] = {
            "max_position_embeddings": 128,
            "original_max_position_embeddings": 16,
        }
        config = Phi3Config(**SMALL, **sizes, rope_parameters=dict(LONG))
        return Phi3ForCausalLM(config).eval()
    config = LlamaConfig(**SMALL, max_position_embeddings=16, rope_parameters=dict(DYNAMIC))
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("layout", ["auto", "packed", "padded"])
@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_up_to_the_limit_log_probs_do_not_depend_on_the_batch(name: str, layout: Any) -> None:
    model = make(name)
    alone = token_logps(model, [SHORT], layout=layout).logps_N
    together = token_logps(model, [SHORT, FULL], layout=layout).logps_N[:3]
    assert (together - alone).abs().max() <= LOGPS_FLOAT32


@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_a_longer_training_sample_is_refused_with_the_limit(name: str) -> None:
    model = make(name)
    with pytest.raises(ConfigError, match=rf"17 tokens.*{name}.*at most 16.*Leave out or shorten"):
        token_logps(model, [SHORT, BEYOND])
    with pytest.raises(ConfigError, match="at most 16"):
        hidden_states(model.base_model, [BEYOND])


@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_the_engine_takes_the_limit_and_refuses_what_may_go_beyond(name: str) -> None:
    engine = TransformersEngine(make(name), TOKENIZER)
    assert engine.max_length == 16
    prompt = Prompt(Problem("t/0", "x", None), (5, 6, 7, 8), "x")
    with pytest.raises(ConfigError, match=r"limit is 16\. Set max_tokens to 12"):
        engine.generate([prompt], 2, Sampling(max_tokens=13), 0)
    (group,) = engine.generate([prompt], 2, Sampling(max_tokens=12), 0)
    assert len(group.rollouts) == 2


def test_other_positions_keep_their_whole_length_also_in_files_of_old() -> None:
    plain = LlamaConfig(**SMALL, max_position_embeddings=128)
    assert room(plain) == 128
    token_logps(LlamaForCausalLM(plain), [TrainingSample((1,), (2,) * 140)])
    yarn: Any = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    yarn["original_max_position_embeddings"] = 32
    assert room(LlamaConfig(**SMALL, max_position_embeddings=128, rope_parameters=yarn)) == 128
    plain.rope_parameters = {"type": "longrope"}
    plain.original_max_position_embeddings = 32
    assert room(plain) == 32
    assert room(object()) is None
