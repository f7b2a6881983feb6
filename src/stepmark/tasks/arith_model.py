"""A tokenizer and a small Llama for `arith`, built in code, without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmark.errors import require

from .arith_words import vocabulary

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["arith_tokenizer", "tiny_llama"]

_PATTERN = r" [+*=-] |: (?=\d)| ?[A-Za-z]+(?: (?=\d))?|\d|\n|[^\n]"
"""The pieces of `arith_words`, as the Rust regex of the tokenizers package reads it."""
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


def arith_tokenizer() -> PreTrainedTokenizerFast:
    """A word-and-digit tokenizer that covers every `arith` text, ids to text and back exactly.

    Every digit is one token wherever it stands, a newline is one, and a space belongs to the word
    or sign beside it. One BOS is added in front; there is no chat template. Other words become
    ``<unk>``.

    Raises:
        SetupError: transformers is not installed.
    """
    transformers = require("transformers", extra="train", purpose="The arith tokenizer")
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    words = {word: id for id, word in enumerate((*SPECIALS, *vocabulary()))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", words["<bos>"])]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=512,
    )


def tiny_llama(
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    layers: int = 3,
    width: int = 128,
    heads: int = 4,
    initializer_range: float = 0.02,
) -> LlamaForCausalLM:
    """A Llama of about 0.65 million parameters in float32, initialised from the seed alone.

    The caller's random state is left as it was.

    Args:
        tokenizer: gives the size of the vocabulary and the special ids.
        seed: the same seed gives the same weights.
        layers: number of transformer blocks.
        width: size of a hidden state; the feed-forward part is three times as wide.
        heads: attention heads; they divide the width.
        initializer_range: standard deviation of the initial weights.

    Raises:
        SetupError: torch or transformers is not installed.
    """
    torch = require("torch", extra="train", purpose="A model for arith")
    transformers = require("transformers", extra="train", purpose="A model for arith")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).to(torch.float32)
