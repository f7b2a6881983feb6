"""Models and prompts for the training benchmarks: random weights, made on the spot."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from stepmark.training.sample import TrainingSample

Shape = dict[str, int]
"""vocabulary, layers, hidden, prompts, group, prompt, sampled."""


def make_tokenizer() -> Any:
    """One token per byte; no start token is added."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words |= {c: i + 3 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        padding_side="left",
    )  # fmt: skip


def make_model(shape: Shape, longest: int = 4096) -> Any:
    """A Llama in float32, the same for the same shape."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        intermediate_size=4 * shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=longest,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).float().eval()


def save(shape: Shape, folder: Path) -> Path:
    """Model and tokenizer as a folder that both sides load."""
    make_model(shape).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_texts(count: int, length: int) -> list[str]:
    """Prompts of that many characters, so that many tokens, all different."""
    body = "what is 12 plus 34 times 2 ? " * (length // 29 + 1)
    return [f"{number:04d} {body}"[:length] for number in range(count)]


def score(text: str) -> float:
    """A reward that costs nothing and differs between completions: in [0, 1]."""
    return (len(set(text)) % 5) / 4


def make_samples(shape: Shape, seed: int = 0, lengths: list[int] | None = None) -> list[Any]:
    """Random tokens as groups behind random prompts, of one length or of those given."""
    draw = random.Random(seed)
    words = range(3, shape["vocabulary"])
    every = lengths or [shape["sampled"]] * (shape["prompts"] * shape["group"])
    found: list[TrainingSample] = []
    for group in range(shape["prompts"]):
        prompt = tuple(draw.choices(words, k=shape["prompt"]))
        for place in range(shape["group"]):
            length = every[group * shape["group"] + place]
            found.append(TrainingSample(prompt, tuple(draw.choices(words, k=length)), group))
    return found
