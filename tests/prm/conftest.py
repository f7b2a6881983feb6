"""Tiny models for tests of reward models: random weights, one token a byte, made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)


def byte_tokenizer() -> Any:
    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words |= {c: i + 3 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def tiny_causal(kind: str = "llama", width: int = 16) -> Any:
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if kind == "gpt2":
        small = {"n_embd": width, "n_layer": 1, "n_head": 2, "n_positions": 512}
        return GPT2LMHeadModel(GPT2Config(vocab_size=259, **small, **ends)).eval()
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.2,
        **ends,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a tiny causal language model, ``llama`` or ``gpt2``."""
    made: dict[str, Path] = {}

    def folder(kind: str = "llama") -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            tiny_causal(kind).save_pretrained(made[kind])
            byte_tokenizer().save_pretrained(made[kind])
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def by_bytes() -> Any:
    """A tokenizer that gives one token a byte."""
    return byte_tokenizer()
