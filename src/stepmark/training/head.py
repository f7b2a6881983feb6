"""Log-probs of given tokens from hidden states, without holding tokens x vocabulary at once.

Shapes: ``N`` sampled tokens, ``D`` hidden width, ``V`` vocabulary, ``C`` tokens of one chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .linear_head import logps_of_linear

__all__ = ["HeadOut", "Split", "logps_of_hidden", "logps_of_logits", "split_model"]

log = logging.getLogger(__name__)

CHUNK_LOGITS = 1 << 23
"""Logits of one chunk by default: 32 MiB in float32, far below what a layer's activations take."""

RESCALED = {
    "final_logit_softcapping": None,
    "logit_scale": 1.0,
    "logits_scaling": 1.0,
    "lm_head_multiplier": 1.0,
}
"""Settings of configs that change logits after the head, with the value that changes nothing."""


class HeadOut(NamedTuple):
    """What the head says of the tokens; both carry gradient, in nats, float32."""

    logps_N: Float[Tensor, " N"]
    entropies_N: Float[Tensor, " N"] | None


class Split(NamedTuple):
    """A causal model in its two halves: ``logits = head(body(ids))``."""

    body: nn.Module
    head: nn.Module


def logps_of_logits(
    logits_NV: Float[Tensor, "N V"],
    targets_N: Int[Tensor, " N"],
    temperature: float,
    with_entropy: bool,
) -> HeadOut:
    r"""Log-probs (and entropies) of the tempered distribution.

    .. math:: \log \mathrm{softmax}(z / T)_y = z_y / T - \mathrm{logsumexp}(z / T)

    >>> out = logps_of_logits(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), 1.0, True)
    >>> round(out.logps_N.item(), 4), round(out.entropies_N.item(), 4)
    (-0.4076, 0.8324)
    """
    scaled_NV = logits_NV.float() / temperature
    norm_N = torch.logsumexp(scaled_NV, dim=-1)
    logps_N = scaled_NV.gather(-1, targets_N[:, None]).squeeze(-1) - norm_N
    if not with_entropy:
        return HeadOut(logps_N, None)
    expected_N = (torch.softmax(scaled_NV, dim=-1) * scaled_NV).sum(-1)
    return HeadOut(logps_N, norm_N - expected_N)


def logps_of_hidden(
    hidden_ND: Float[Tensor, "N D"],
    head: Callable[[Tensor], Tensor],
    targets_N: Int[Tensor, " N"],
    *,
    temperature: float,
    with_entropy: bool = False,
    vocabulary: int,
    chunk: int | None = None,
) -> HeadOut:
    """The same from hidden states, in chunks whose logits are made again in the backward pass.

    A linear head is one operation with its own gradient; another is checkpointed.

    Args:
        hidden_ND: one row per sampled token: the state that predicts it.
        head: hidden states to logits.
        targets_N: the sampled tokens.
        temperature: logits are divided by it before the log-softmax.
        with_entropy: also the entropy of each distribution.
        vocabulary: width of the logits, for the default chunk.
        chunk: tokens whose logits are held at once; by default as many as make 32 MiB.
    """
    count = hidden_ND.shape[0]
    size = chunk or max(1, CHUNK_LOGITS // vocabulary)
    if count > size and _is_plain(head):
        return HeadOut(
            *logps_of_linear(hidden_ND, head, targets_N, temperature, with_entropy, size)
        )

    def of_chunk(hidden_CD: Float[Tensor, "C D"], targets_C: Int[Tensor, " C"]) -> HeadOut:
        return logps_of_logits(head(hidden_CD), targets_C, temperature, with_entropy)

    if count <= size:
        return of_chunk(hidden_ND, targets_N)
    parts: list[HeadOut] = []
    for start in range(0, count, size):
        piece = hidden_ND[start : start + size], targets_N[start : start + size]
        if torch.is_grad_enabled():
            made: Any = checkpoint(of_chunk, *piece, use_reentrant=False)
            parts.append(made)
        else:
            parts.append(of_chunk(*piece))
    logps_N = torch.cat([part.logps_N for part in parts])
    entropies = [part.entropies_N for part in parts if part.entropies_N is not None]
    return HeadOut(logps_N, torch.cat(entropies) if entropies else None)


def _is_plain(head: Callable[[Tensor], Tensor]) -> TypeGuard[nn.Linear]:
    """Whether a head is a weight and a bias and nothing else: no adapter, no hook on its calls."""
    if not isinstance(head, nn.Linear) or type(head) is not nn.Linear:
        return False
    return not (head._forward_hooks or head._forward_pre_hooks or head._backward_hooks)


_splits: WeakKeyDictionary[nn.Module, Split | None] = WeakKeyDictionary()


def split_model(model: nn.Module) -> Split | None:
    """The halves of a causal model, or None where they cannot be told apart; asked once per model.

    A model whose halves do not give its own logits on a probe, or whose config rescales logits
    after the head, is not split: the forward then takes full logits, and one log line says so.
    """
    if model not in _splits:
        split, why = _find_split(model)
        if split is None:
            log.warning(
                "%s: the output head is not separate (%s); log-probs take full logits, "
                "which needs more memory.",
                type(model).__name__,
                why,
            )
        _splits[model] = split
    return _splits[model]


def _find_split(model: Any) -> tuple[Split | None, str]:
    if hasattr(model, "get_base_model"):  # of peft, which puts its layers into the model itself
        model = model.get_base_model()
    config = getattr(model, "config", None)
    for name, neutral in RESCALED.items():
        value = getattr(config, name, neutral)
        if value is not None and value != neutral:
            return None, f"its config sets {name} to {value!r}"
    head = getattr(model, "get_output_embeddings", lambda: None)()
    body = getattr(model, "base_model", None)
    if not isinstance(head, nn.Module) or not isinstance(body, nn.Module) or body is model:
        return None, "it has no base model or no output embeddings"
    split = Split(body, head)
    return (split, "") if _gives_its_logits(model, split) else (None, "a probe gave other logits")


@torch.no_grad()
def _gives_its_logits(model: nn.Module, split: Split) -> bool:
    training = model.training
    model.eval()
    try:
        ids_BT = torch.arange(3, device=next(model.parameters()).device)[None]
        wanted: Tensor = model(input_ids=ids_BT, use_cache=False).logits
        hidden = split.body(input_ids=ids_BT, use_cache=False)[0]
        given: Tensor = split.head(hidden)
    except (TypeError, RuntimeError, AttributeError, IndexError) as error:
        log.debug("probe of %s: %s", type(model).__name__, error)
        return False
    finally:
        model.train(training)
    return given.shape == wanted.shape and bool(
        torch.allclose(given.float(), wanted.float(), rtol=1e-3, atol=1e-3)
    )
