"""Log-probs of sampled tokens under a model, with gradient: what every backend learns from.

Shapes: ``B`` samples, ``T`` padded tokens, ``N`` sampled tokens of all samples, ``D`` hidden width.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from stepmark.errors import ConfigError

from .attention import run_layout, takes_layouts
from .head import HeadOut, logps_of_hidden, logps_of_logits, split_model
from .layout import lay_end_to_end
from .packing import pack, pack_end_to_end
from .rope import check_lengths
from .sample import TrainingSample

__all__ = [
    "TokenOut",
    "body_batches",
    "hidden_states",
    "micro_batches",
    "reference_logps",
    "token_logps",
]


@dataclass(frozen=True, slots=True, eq=False)
class TokenOut:
    """What a model says of the sampled tokens, flat over all samples in their order.

    There is no padding and no mask in it: every number belongs to a token that was sampled.
    """

    logps_N: Float[Tensor, " N"]
    """Log-prob of each sampled token under the tempered distribution, nats, float32."""
    entropies_N: Float[Tensor, " N"] | None
    """Entropy of each of those distributions, nats; None when not asked for. Carries gradient."""
    lengths: tuple[int, ...]
    """Sampled tokens of each sample; they sum to ``N``."""
    values_N: Float[Tensor, " N"] | None = None
    """What the critic expects before each token, in reward units; None without a critic."""

    def split(self) -> tuple[Tensor, ...]:
        """The log-probs of each sample."""
        return torch.split(self.logps_N, list(self.lengths))

    def split_entropies(self) -> tuple[Tensor, ...]:
        """The entropies of each sample.

        Raises:
            ValueError: they were not asked for.
        """
        if self.entropies_N is None:
            raise ValueError("There are no entropies: call token_logps with with_entropy=True.")
        return torch.split(self.entropies_N, list(self.lengths))


class Rows(NamedTuple):
    """Samples laid out for a forward pass; the last token of a row predicts nothing: left out."""

    ids_BT: Int[Tensor, "B T"]
    mask_BT: Int[Tensor, "B T"]
    positions_BT: Int[Tensor, "B T"]
    rows_N: Int[Tensor, " N"]
    """Row of the state that predicts each sampled token."""
    places_N: Int[Tensor, " N"]
    """Its place in the row: one before the token itself."""
    targets_N: Int[Tensor, " N"]


def lay_out(samples: Sequence[TrainingSample], device: torch.device) -> Rows:
    """Right-padded rows; masks and places come from lengths, never from token ids.

    So the sampled end token is trained, also where a tokenizer pads with its end token.
    """
    inputs = [[*sample.prompt_ids, *sample.ids[:-1]] for sample in samples]
    width = max(len(row) for row in inputs)
    lengths = torch.tensor([len(row) for row in inputs])
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in inputs])
    positions_T = torch.arange(width)
    counts = torch.tensor([len(sample.ids) for sample in samples])
    rows_N = torch.repeat_interleave(torch.arange(len(samples)), counts)
    places_N = torch.cat(
        [torch.arange(len(s.prompt_ids) - 1, len(s.prompt_ids) - 1 + len(s.ids)) for s in samples]
    )
    targets_N = torch.tensor([token for sample in samples for token in sample.ids])
    rows = Rows(
        ids_BT,
        (positions_T[None] < lengths[:, None]).long(),
        positions_T.expand(len(samples), width),
        rows_N,
        places_N,
        targets_N,
    )
    return Rows(*(tensor.to(device) for tensor in rows))


LayoutName = Literal["auto", "packed", "padded"]
"""How rows are laid out: prompts shared where that saves work; end to end with nothing shared; one
padded row each. A model that cannot take the first two takes the third."""


def token_logps(
    model: nn.Module,
    samples: Sequence[TrainingSample],
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    head_chunk: int | None = None,
    layout: LayoutName = "auto",
) -> TokenOut:
    """Log-probs of all sampled tokens of one micro-batch, in one forward pass; gradient flows.

    Hidden states are taken only where a sampled token is predicted, and the output head runs in
    chunks, so that tokens x vocabulary is never held for all tokens. The training flag of the
    model is left alone: with dropout above 0, log-probs differ from the sampler's.

    Args:
        model: a causal language model of transformers.
        samples: at least one.
        temperature: that of the sampler; logits are divided by it, in float32.
        with_entropy: also the entropy of each distribution.
        head_chunk: tokens whose logits are held at once; by default as many as make 32 MiB.
        layout: of the rows; the default is the fastest that the model can take.

    Raises:
        ConfigError: the temperature is not above 0, there is no sample, or one is longer than the
            model's positions are the same in any batch (``longrope``, ``dynamic``).
    """
    if temperature <= 0:
        raise ConfigError(
            f"Log-probs at temperature {temperature} do not exist; it must be above 0. "
            "Greedy completions are scored at temperature 1."
        )
    if not samples:
        raise ConfigError("token_logps got no samples; a micro-batch holds at least one.")
    check_lengths(getattr(model, "config", None), samples)
    split = split_model(model)
    if split is None:
        rows = lay_out(samples, next(model.parameters()).device)
        logits_NV = _run(model, rows).logits[rows.rows_N, rows.places_N]
        out = logps_of_logits(logits_NV, rows.targets_N, temperature, with_entropy)
    else:
        hidden_ND, targets_N = _hidden(split.body, samples, layout)
        out: HeadOut = logps_of_hidden(
            hidden_ND,
            split.head,
            targets_N,
            temperature=temperature,
            with_entropy=with_entropy,
            vocabulary=_vocabulary(split.head),
            chunk=head_chunk,
        )
    return TokenOut(out.logps_N, out.entropies_N, tuple(len(sample.ids) for sample in samples))


def hidden_states(body: nn.Module, samples: Sequence[TrainingSample]) -> Float[Tensor, "N D"]:
    """The state of a model's body that predicts each sampled token; gradient flows.

    Raises:
        ConfigError: a sample is longer than the model's positions are the same in any batch.
    """
    check_lengths(getattr(body, "config", None), samples)
    return _hidden(body, samples, "auto")[0]


def _hidden(
    body: nn.Module, samples: Sequence[TrainingSample], layout: LayoutName
) -> tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]:
    """The states that predict the sampled tokens, and those tokens."""
    device = next(body.parameters()).device
    if layout == "padded" or not takes_layouts(body):
        rows = lay_out(samples, device)
        return _run(body, rows)[0][rows.rows_N, rows.places_N], rows.targets_N
    row = lay_end_to_end(samples, device, _width(body), share=layout == "auto")
    return run_layout(body, row)[row.places_N], row.targets_N


def micro_batches(
    model: nn.Module, samples: Sequence[TrainingSample], token_budget: int
) -> list[list[TrainingSample]]:
    """The samples in micro-batches for `token_logps`: as the model's forward lays them out.

    Groups stay together where prompts are shared; pairs always do.

    Raises:
        ConfigError: the budget is less than one token.
    """
    split = split_model(model)
    if split is None:
        return pack(samples, token_budget)
    return body_batches(split.body, samples, token_budget)


def body_batches(
    body: nn.Module, samples: Sequence[TrainingSample], token_budget: int
) -> list[list[TrainingSample]]:
    """The same for `hidden_states` of a body.

    Raises:
        ConfigError: the budget is less than one token.
    """
    if takes_layouts(body):
        return pack_end_to_end(samples, token_budget)
    return pack(samples, token_budget)


def _width(body: Any) -> int:
    return int(body.config.get_text_config().hidden_size)


@torch.no_grad()
def reference_logps(
    model: nn.Module, samples: Sequence[TrainingSample], temperature: float, token_budget: int
) -> list[Tensor]:
    """Log-probs under a frozen model: one float32 CPU tensor per sample, in the given order.

    Runs in eval mode, packed by the token budget, without gradient; the model's own training flag
    is put back.
    """
    training = model.training
    model.eval()
    found: dict[int, Tensor] = {}
    try:
        for micro in micro_batches(model, samples, token_budget):
            out = token_logps(model, micro, temperature=temperature)
            for sample, logps in zip(micro, out.split(), strict=True):
                found[id(sample)] = logps.cpu().clone()
    finally:
        model.train(training)
    return [found[id(sample)] for sample in samples]


def _run(module: nn.Module, rows: Rows) -> Any:
    given: dict[str, Any] = {"input_ids": rows.ids_BT, "attention_mask": rows.mask_BT}
    if "position_ids" in inspect.signature(module.forward).parameters:
        given["position_ids"] = rows.positions_BT
    return module(**given, use_cache=False)


def _vocabulary(head: nn.Module) -> int:
    weight = getattr(head, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) else 1 << 17
