"""Attention in blocks for models of transformers: rows of one forward pass that share a prompt.

A model whose attention goes through transformers' attention interface can run a `Layout`. Its
own implementation is wrapped under a name of ours, which does nothing else until a pattern comes
with the call; so evaluation with the same model stays what it was. Of the last layer, only the
tokens whose state is asked for go through the MLP.

Shapes: ``B`` rows, ``H`` heads, ``T`` tokens of the row, ``D`` width of a head, ``R`` rows of a
block, ``K`` tokens whose state is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .layout import Block, Layout, lay_end_to_end
from .sample import TrainingSample

__all__ = ["Blocks", "Pattern", "run_layout", "run_pattern", "takes_layouts"]

log = logging.getLogger(__name__)

PREFIX = "stepmark_blocks_over_"
PATTERN = "stepmark_pattern"
"""Name of the keyword that carries the pattern through a model to its attention."""

UNKNOWN = ("softcap", "sliding_window", "s_aux", "position_bias", "head_mask")
"""What a layer may ask of its attention and patterns do not do."""

LIMITS = ("sliding_window", "attention_chunk_size")
"""Settings of configs that limit what a token attends to; some models do so in their masks only,
which patterns replace."""

Attend = Callable[..., tuple[Tensor, Any]]


class Unsupported(RuntimeError):
    """A layer asks for attention that patterns do not do."""


class Pattern(Protocol):
    """Who attends to whom in a forward pass."""

    def attend(
        self, own: Attend, module: nn.Module, states: tuple[Tensor, Tensor, Tensor], **wanted: Any
    ) -> Tensor:
        """What a layer's attention gives, ``B T H D``.

        Args:
            own: the attention of transformers, which the pattern may call for its pieces.
            module: the layer's attention.
            states: queries, keys and values, ``B H T D``.
            **wanted: ``dropout`` and ``scaling``, where the layer names them.
        """
        ...


def run_layout(body: nn.Module, layout: Layout) -> Tensor:
    """Hidden states of the row, one per token; gradient flows.

    Where `Layout.kept_K` is set, only the states of those tokens mean something.

    Raises:
        Unsupported: the model's attention needs what blocks do not do.
    """
    ids_1T, positions_1T = layout.ids_T[None], layout.positions_T[None]
    return run_pattern(body, ids_1T, positions_1T, Blocks(layout), layout.kept_K)[0]


def run_pattern(
    body: nn.Module,
    ids_BT: Tensor,
    positions_BT: Tensor,
    pattern: Pattern,
    kept_K: Tensor | None = None,
) -> Tensor:
    """Hidden states of a body whose attention goes by a pattern, ``B T D``; gradient flows.

    Raises:
        Unsupported: the model's attention needs what patterns do not do.
    """
    _wrap(body)
    # transformers hands a mask of four dimensions on as it is, and makes none of its own.
    untouched = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids_BT.device)
    given: dict[str, Any] = {
        "input_ids": ids_BT,
        "position_ids": positions_BT,
        "attention_mask": untouched,
        "use_cache": False,
        PATTERN: pattern,
    }
    with _narrowed(body, kept_K):
        return body(**given)[0]


@contextmanager
def _narrowed(body: nn.Module, kept_K: Tensor | None) -> Iterator[None]:
    """Inside, the last layer's MLP takes these tokens of a row and gives zeros for the others."""
    mlp = None if kept_K is None or _narrows.get(body) is False else _last_mlp(body)
    if mlp is None or kept_K is None:
        yield
        return
    width = 0

    def before(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        nonlocal width
        width = given[0].shape[1]
        return (given[0].index_select(1, kept_K), *given[1:])

    def after(_: nn.Module, given: object, out_1KD: Tensor) -> Tensor:
        whole_1TD = out_1KD.new_zeros(1, width, out_1KD.shape[-1])
        return whole_1TD.index_copy(1, kept_K, out_1KD)

    hooks = [mlp.register_forward_pre_hook(before), mlp.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _last_mlp(body: Any) -> nn.Module | None:
    """The MLP of the last layer; None where it is not found, or is to be computed again later."""
    count = body.config.get_text_config().num_hidden_layers
    for module in body.children():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            last: Any = module[-1]
            is_recomputed = last.training and getattr(last, "gradient_checkpointing", False)
            mlp = getattr(last, "mlp", None)
            return mlp if isinstance(mlp, nn.Module) and not is_recomputed else None
    return None


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
    """The same attention, which goes by a pattern where one comes with the call."""

    def pattern_or_own(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Any]:
        pattern: Pattern | None = kwargs.pop(PATTERN, None)
        if pattern is None:
            return attend(module, query, key, value, attention_mask, **kwargs)
        for name in UNKNOWN:
            if kwargs.get(name) is not None:
                raise Unsupported(f"its attention takes {name}")
        wanted = {name: kwargs[name] for name in ("dropout", "scaling") if name in kwargs}
        return pattern.attend(attend, module, (query, key, value), **wanted), None

    return pattern_or_own


class Blocks:
    """Attention by the blocks of a layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.layers = 0
        """Layers whose attention went by the blocks: a probe looks at it."""

    def attend(
        self, own: Attend, module: nn.Module, states: tuple[Tensor, Tensor, Tensor], **wanted: Any
    ) -> Tensor:
        """What a layer's attention gives, block by block."""
        self.layers += 1
        blocks = self.layout.blocks
        sizes = [block.rows * block.length for block in blocks]
        # One split, whose gradient is one copy: that of a slice is as long as the row.
        pieces = [some[0].split(sizes, dim=1) for some in states]
        parts: list[Tensor] = []
        for place, block in enumerate(blocks):
            q_RHTD, k_RHTD, v_RHTD = (
                _rows(block, piece[place], piece[block.prompt], of == 0)
                for of, piece in enumerate(pieces)
            )
            # Of four axes: where a query is one token, transformers groups heads and asks for them.
            mask = None if block.mask is None else block.mask[None, None]
            out_RTHD, _ = own(
                module, q_RHTD, k_RHTD, v_RHTD, mask, is_causal=mask is None, **wanted
            )
            parts.append(out_RTHD[:, -block.length :].reshape(-1, *out_RTHD.shape[2:]))
        return torch.cat(parts)[None]


def _rows(block: Block, own_HTD: Tensor, prompts_HTD: Tensor, is_query: bool) -> Tensor:
    """The block's own rows, each behind its prompt."""
    heads, _, width = own_HTD.shape
    own_RHTD = own_HTD.reshape(heads, block.rows, block.length, width).transpose(0, 1)
    if not block.shared or (is_query and block.mask is not None):
        return own_RHTD
    if is_query:  # what comes of these queries is dropped: the prompts have a block of their own
        prompts_HTD = prompts_HTD.detach()
    each = block.rows // block.prompts
    prompts_PHTD = prompts_HTD.reshape(heads, block.prompts, block.shared, width).transpose(0, 1)
    spread_PGHTD = prompts_PHTD[:, None].expand(-1, each, -1, -1, -1)
    own_PGHTD = own_RHTD.unflatten(0, (block.prompts, each))
    return torch.cat([spread_PGHTD, own_PGHTD], dim=3).flatten(0, 1)


_probed: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_narrows: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether the last MLP of a body may be given some of the tokens only."""

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
    limited = _limit(config)
    if limited is not None:
        return limited
    own = getattr(config, "_attn_implementation", None)
    training = body.training
    body.eval()
    why = None
    try:
        for _narrows[body] in (True, False):
            why = _why_not(body, config)
            if why is None:
                break
    finally:
        body.train(training)
    if why is not None and own is not None:
        config._attn_implementation = own
    return why


def _limit(config: Any) -> str | None:
    """What of a config says that tokens do not attend to all that is before them."""
    text = getattr(config, "get_text_config", lambda: config)()
    for name in LIMITS:
        value = getattr(text, name, None)
        is_off = name == "sliding_window" and not getattr(text, "use_sliding_window", True)
        if value is not None and not is_off:
            return f"its config sets {name} to {value}"
    kinds = getattr(text, "layer_types", None) or ()
    other = next((kind for kind in kinds if kind != "full_attention"), None)
    return None if other is None else f"its config has layers of {other}"


def _why_not(body: nn.Module, config: Any) -> str | None:
    try:
        return _probe(body, config)
    except (TypeError, RuntimeError, AttributeError, IndexError, ValueError) as error:
        log.debug("probe of %s: %s", type(body).__name__, error)
        return str(error) if isinstance(error, Unsupported) else "a probe failed"


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
    blocks = Blocks(layout)
    row = (layout.ids_T[None], layout.positions_T[None])
    given = run_pattern(body, *row, blocks, layout.kept_K)[0, layout.places_N]
    if blocks.layers != config.get_text_config().num_hidden_layers:
        return "not all its layers attend through the attention interface of transformers"
    gap = float((given.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    allowed = 1e-4 if wanted.dtype == torch.float32 else 0.05
    return None if gap <= allowed else f"a probe gave hidden states {gap:.1g} away"
