"""What a run will hold in memory, estimated from a model's config before its weights are loaded.

Weights, gradients and optimizer are exact up to padding. Activations are those of a Llama-like
layer, which most models are: good to about a factor of two, and meant to tell 20 GB from 200.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmark.config.peft_table import PeftTable
from stepmark.errors import require

__all__ = ["MemoryRow", "Shape", "memory_rows", "shape_of"]

log = logging.getLogger(__name__)

GRADIENT_CHUNKS = 3
"""Chunks of tokens x vocabulary that the output head holds at once."""

HEAD_CHUNK = 32 << 20
"""Bytes of one of them, float32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What memory depends on, read from a model's config."""

    weights: int
    """Numbers in the model."""
    body_weights: int
    """Those without the output head: what a critic of its own copies."""
    layers: int
    width: int
    inner: int
    """Width of the feed-forward part."""
    kv_width: int
    """Numbers of one key, or one value, of one token in one layer."""
    adapters: int = 0
    """Numbers that learn in place of those of the model; 0 where the model learns."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One thing that is held, and its size."""

    what: str
    size: int
    """Bytes."""


def shape_of(place: str, peft: PeftTable | None = None) -> Shape | None:
    """The shape of the model in a folder; None where no folder holds a config that is known.

    Raises:
        ConfigError: adapters are asked for beside layers that the model has not.
    """
    folder = Path(place).expanduser()
    if not (folder / "config.json").is_file():
        return None
    torch = require("torch", extra="train", purpose="An estimate of memory")
    require("transformers", extra="train", purpose="An estimate of memory")
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        whole = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(whole)
        config: Any = whole.get_text_config()
        width, heads = int(config.hidden_size), int(config.num_attention_heads)
        layers = int(config.num_hidden_layers)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        log.debug("no shape of %s: %s", place, error)
        return None
    head_width = int(getattr(config, "head_dim", None) or width // heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return Shape(
        weights=sum(weight.numel() for weight in model.parameters()),
        body_weights=sum(weight.numel() for weight in model.base_model.parameters()),
        layers=layers,
        width=width,
        inner=int(getattr(config, "intermediate_size", None) or 4 * width),
        kv_width=kv_heads * head_width,
        adapters=0 if peft is None else _adapter_weights(model, peft),
    )


def _adapter_weights(model: Any, peft: PeftTable) -> int:
    """``A`` and ``B`` of a layer hold as many numbers as its input and output are wide."""
    from .lora import targets_of

    layers: list[Any] = list(targets_of(model, peft).values())
    return sum(peft.rank * sum(layer.weight.shape) for layer in layers)


def memory_rows(
    shape: Shape,
    *,
    dtype: str,
    is_cast: bool,
    checkpointing: bool,
    microbatch_tokens: int,
    frozen: int = 0,
    given: int = 0,
    critic: str | None = None,
    sampled_tokens: int = 0,
) -> list[MemoryRow]:
    """What is held at the peak of a step, the largest things by name.

    Args:
        shape: of the policy.
        dtype: of the weights, ``float32`` or ``bfloat16``.
        is_cast: whether matrix products run in bfloat16 over float32 weights.
        checkpointing: whether layers are computed again in the backward pass.
        microbatch_tokens: tokens of one forward pass that learns.
        frozen: copies of the policy that do not learn, such as the reference.
        given: models besides it that do not learn, taken to be as large.
        critic: ``own`` for a body of its own, ``shared``, or None.
        sampled_tokens: tokens in the engine's cache at once; 0 where nothing is sampled.
    """
    size = 4 if dtype == "float32" else 2
    active = 2 if is_cast or dtype != "float32" else 4
    rows = _held(shape, size, frozen, given, critic)
    layer = 9 * shape.width + 4 * shape.kv_width + 4 * shape.inner
    kept = shape.layers * (shape.width if checkpointing else layer)
    kept += layer if checkpointing else 0
    activations = microbatch_tokens * kept * active * (2 if critic == "own" else 1)
    rows.append(MemoryRow("activations of a micro-batch", activations))
    rows.append(MemoryRow("logits of a chunk", GRADIENT_CHUNKS * HEAD_CHUNK))
    if sampled_tokens:
        cache = 2 * shape.layers * shape.kv_width * active * sampled_tokens
        rows.append(MemoryRow("keys and values while sampling", cache))
    return rows


def _held(shape: Shape, size: int, frozen: int, given: int, critic: str | None) -> list[MemoryRow]:
    """What is held all the time: weights, gradients, optimizers."""
    weights = shape.weights * size
    if shape.adapters:
        learnt = own = 4 * shape.adapters
        whose, copies = "their", "frozen adapters"
        rows = [MemoryRow("weights of the base model", weights), MemoryRow("adapters", learnt)]
    else:
        learnt, own = weights, shape.body_weights * size
        whose, copies = "its", "frozen copies of it"
        rows = [MemoryRow("weights of the policy", weights)]
    rows += [
        MemoryRow(f"{whose} gradients", learnt),
        MemoryRow(f"{whose} optimizer (two numbers per weight)", 2 * learnt),
    ]
    if frozen:
        rows.append(MemoryRow(f"{copies} ({frozen})", frozen * learnt))
    if given:
        rows.append(MemoryRow("reference, a model of its own", given * weights))
    if critic == "own":
        rows.append(MemoryRow("critic with gradients and optimizer", 4 * own))
    return rows
