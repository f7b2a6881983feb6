"""In which numbers a run computes: float32 weights under bfloat16 autocast, layers made again.

Master weights, gradients and optimizer stay in the type that ``model.dtype`` names; inside of
`Precision.forward` and `Precision.sampling` matrix products run in bfloat16. What samples and
what learns must agree, so both are inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stepmark.errors import ConfigError

from .tolerances import LOGPS_BFLOAT16, LOGPS_FLOAT32

__all__ = [
    "Autocast",
    "Precision",
    "changed_share",
    "logps_tolerance",
    "precision_of",
    "some_weights",
]

Autocast = Literal["auto", "bfloat16", "none"]

LOOKED_AT = 4096
"""Weights of each tensor that `some_weights` keeps, evenly spaced: enough for a share, cheap."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How forward passes of a run are made; the default changes nothing."""

    device: str = "cpu"
    autocast: torch.dtype | None = None
    """Type of matrix products; None leaves that of the weights."""
    checkpointing: bool = False
    """Whether the layers are computed once more in the backward pass, to hold fewer activations."""

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Inside, forward passes that a gradient is taken of.

        Casts of weights are not kept: one that was made without gradient would cut it off.
        """
        with torch.autocast(
            self.device, self.autocast, enabled=self.autocast is not None, cache_enabled=False
        ):
            yield

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Inside, forward passes without gradient, while the weights do not change."""
        with torch.autocast(self.device, self.autocast, enabled=self.autocast is not None):
            yield

    @contextmanager
    def recomputing(self, *modules: nn.Module | None) -> Iterator[None]:
        """Inside, layers keep only their inputs for the backward pass; dropout stays off."""
        with ExitStack() as stack:
            for module in modules if self.checkpointing else ():
                if module is not None:
                    stack.enter_context(_layers_training(module))
            yield


@contextmanager
def _layers_training(module: nn.Module) -> Iterator[None]:
    """Layers are recomputed in training mode only; what is inside of them stays in eval mode."""
    layers = [one for one in module.modules() if getattr(one, "gradient_checkpointing", False)]
    before = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = True
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.training = was


def precision_of(model: Any, autocast: Autocast = "auto", checkpointing: bool = False) -> Precision:
    """What these settings mean for a model; its layers are set up for recomputation when asked.

    Args:
        model: of transformers, in float32 or bfloat16, where it will train.
        autocast: ``auto`` is bfloat16 on a GPU that has it, and none elsewhere.
        checkpointing: compute the layers again in the backward pass.

    Raises:
        ConfigError: the model cannot do without its activations.
    """
    device = model.device.type
    if checkpointing:
        if not getattr(model, "supports_gradient_checkpointing", False):
            raise ConfigError(
                f"model.gradient_checkpointing is true, and a {type(model).__name__} cannot "
                "compute its layers again. Set it to false, and lower "
                "algorithm.tokens_per_microbatch where memory is short."
            )
        older = "gradient_checkpointing_enable"  # its name in earlier versions
        enable = getattr(model, "activation_checkpointing_enable", None) or getattr(model, older)
        enable({"use_reentrant": False})
    has_it = device == "cuda" and torch.cuda.is_bf16_supported()
    wanted = autocast == "bfloat16" or (autocast == "auto" and has_it)
    cast = torch.bfloat16 if wanted and model.dtype == torch.float32 else None
    return Precision(device, cast, checkpointing)


def logps_tolerance(model: Any) -> float:
    """How far log-probs of one model may differ here: less in float32 than under autocast."""
    is_cast = torch.is_autocast_enabled(model.device.type)
    return LOGPS_FLOAT32 if model.dtype == torch.float32 and not is_cast else LOGPS_BFLOAT16


def some_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of at most 4,096 trained weights of each tensor, evenly spaced."""
    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            flat = weight.detach().flatten()
            found[name] = flat[:: max(1, flat.numel() // LOOKED_AT)].clone()
    return found


def changed_share(before: Mapping[str, Tensor], model: nn.Module) -> float:
    """Share of those weights that an optimizer step changed; near 0, the type rounds them away.

    Tensors count by their size, not by how many of their weights were looked at.
    """
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    after = some_weights(model)
    changed: Iterable[float] = (
        float((after[name] != old).float().mean()) * sizes[name] for name, old in before.items()
    )
    return sum(changed) / max(sum(sizes[name] for name in before), 1)
