"""Attention in blocks for models of transformers: rows of one forward pass that share a prompt.

A model whose attention goes through transformers' attention interface can run a `Layout`. Its
own implementation is wrapped under a name of ours, which does nothing else until a layout comes
with the call; so generation and evaluation with the same model stay what they were.

Shapes: ``H`` heads, ``T`` tokens of the row, ``D`` width of a head, ``R`` rows of a block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .layout import Block, Layout, lay_end_to_end
from .sample import TrainingSample

__all__ = ["run_layout", "takes_layouts"]

log = logging.getLogger(__name__)

PREFIX = "stepmark_blocks_over_"
LAYOUT = "stepmark_layout"
"""Name of the keyword that carries the layout through a model to its attention."""

UNKNOWN = ("softcap", "sliding_window", "s_aux", "position_bias", "head_mask")
"""What a layer may ask of its attention and blocks do not do."""

Attend = Callable[..., tuple[Tensor, Any]]


class Unsupported(RuntimeError):
    """A layer asks for attention that blocks do not do."""


def run_layout(body: nn.Module, layout: Layout) -> Tensor:
    """Hidden states of the row, one per token; gradient flows.

    Raises:
        Unsupported: the model's attention needs what blocks do not do.
    """
    _wrap(body)
    # transformers hands a mask of four dimensions on as it is, and makes none of its own.
    untouched = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids_T.device)
    given: dict[str, Any] = {
        "input_ids": layout.ids_T[None],
        "position_ids": layout.positions_T[None],
        "attention_mask": untouched,
        "use_cache": False,
        LAYOUT: layout,
    }
    return body(**given)[0][0]


def _wrap(body: nn.Module) -> None:
    """Set the model's attention to ours over its own; it stays, as gradients may be recomputed."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    config: Any = getattr(body, "config", None)
    own: str | None = getattr(config, "_attn_implementation", None)
    if own is None:
        raise Unsupported("its config names no attention")
    if own.startswith(PREFIX):
        return
    if own != "sdpa":
        raise Unsupported(f"its attention is {own}, not sdpa")
    name = PREFIX + own
    if name not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(name, _over(ALL_ATTENTION_FUNCTIONS[own]))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
    config._attn_implementation = name


def _over(attend: Attend) -> Attend:
    """The same attention, which goes by blocks where a layout comes with the call."""

    def blocks_or_own(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Any]:
        layout: Layout | None = kwargs.pop(LAYOUT, None)
        if layout is None:
            return attend(module, query, key, value, attention_mask, **kwargs)
        for name in UNKNOWN:
            if kwargs.get(name) is not None:
                raise Unsupported(f"its attention takes {name}")
        layout.attended.append(1)
        wanted = {name: kwargs[name] for name in ("dropout", "scaling") if name in kwargs}
        sizes = [block.rows * block.length for block in layout.blocks]
        # One split, whose gradient is one copy: that of a slice is as long as the row.
        pieces = [states[0].split(sizes, dim=1) for states in (query, key, value)]
        parts: list[Tensor] = []
        for place, block in enumerate(layout.blocks):
            q_RHTD, k_RHTD, v_RHTD = (
                _rows(block, piece[place], piece[block.prompt], of == 0)
                for of, piece in enumerate(pieces)
            )
            out_RTHD, _ = attend(
                module, q_RHTD, k_RHTD, v_RHTD, block.mask, is_causal=block.mask is None, **wanted
            )
            parts.append(out_RTHD[:, -block.length :].reshape(-1, *out_RTHD.shape[2:]))
        return torch.cat(parts)[None], None

    return blocks_or_own


def _rows(block: Block, own_HTD: Tensor, prompt_HTD: Tensor, is_query: bool) -> Tensor:
    """The block's own rows, behind the prompt that they share."""
    heads, _, width = own_HTD.shape
    own_RHTD = own_HTD.reshape(heads, block.rows, block.length, width).transpose(0, 1)
    if not block.shared or (is_query and block.mask is not None):
        return own_RHTD
    if is_query:  # what comes of these queries is dropped: the prompt has a block of its own
        prompt_HTD = prompt_HTD.detach()
    prompt_RHTD = prompt_HTD.expand(block.rows, *prompt_HTD.shape)
    return torch.cat([prompt_RHTD, own_RHTD], dim=2)


_probed: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()

PROBE = (
    ((1, 2, 3, 4, 5), (6, 7, 8)),
    ((1, 2, 3, 4, 5), (2, 3, 1, 4, 5, 6, 7, 8)),
    ((3, 1), (1, 2, 4)),
)
"""Prompts and completions: one shorter than its prompt, one longer, one with its own prompt."""


def takes_layouts(body: nn.Module) -> bool:
    """Whether a model's body gives its own hidden states by blocks; asked once per model.

    Where it does not, one log line says why, and its forward passes take padded rows.
    """
    if body not in _probed:
        why = _refusal(body)
        if why is not None:
            log.warning(
                "%s: prompts are not shared (%s); forward passes take padded rows, which costs "
                "more time.",
                type(body).__name__,
                why,
            )
        _probed[body] = why is None
    return _probed[body]


@torch.no_grad()
def _refusal(body: nn.Module) -> str | None:
    """Why a body cannot run a layout; None when it can. Its own attention is put back if not."""
    config: Any = getattr(body, "config", None)
    own = getattr(config, "_attn_implementation", None)
    training = body.training
    body.eval()
    try:
        why = _probe(body, config)
    except (TypeError, RuntimeError, AttributeError, IndexError, ValueError) as error:
        log.debug("probe of %s: %s", type(body).__name__, error)
        why = str(error) if isinstance(error, Unsupported) else "a probe failed"
    finally:
        body.train(training)
    if why is not None and own is not None:
        config._attn_implementation = own
    return why


def _probe(body: Any, config: Any) -> str | None:
    device, words = next(body.parameters()).device, len(body.get_input_embeddings().weight)
    samples = [
        TrainingSample(tuple(t % words for t in prompt), tuple(t % words for t in sampled))
        for prompt, sampled in PROBE
    ]
    alone: list[Tensor] = []
    for sample in samples:
        ids_1T = torch.tensor([[*sample.prompt_ids, *sample.ids[:-1]]], device=device)
        alone.append(body(input_ids=ids_1T)[0][0, len(sample.prompt_ids) - 1 :])
    wanted = torch.cat(alone)
    layout = lay_end_to_end(samples, device, width=1 << 20)
    given = run_layout(body, layout)[layout.places_N]
    if len(layout.attended) != config.get_text_config().num_hidden_layers:
        return "not all its layers attend through the attention interface of transformers"
    gap = float((given.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    allowed = 1e-4 if wanted.dtype == torch.float32 else 0.05
    return None if gap <= allowed else f"a probe gave hidden states {gap:.1g} away"
