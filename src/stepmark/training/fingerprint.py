"""A short name for the weights of a model: it tells policies apart, and proves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor, nn

__all__ = ["fingerprint", "fingerprint_of"]

BLOCK = 1 << 18
"""Numbers that are added up at once: their copies as integers stay small."""


def fingerprint(model: nn.Module) -> str:
    """A short name for the weights of a model, the same on any device and with any threads.

    Cheap enough to take at every step. Weights in bfloat16 or float16 have the name of the same
    numbers in float32.
    """
    return fingerprint_of(model.named_parameters())


def fingerprint_of(named: Iterable[tuple[str, Tensor]]) -> str:
    """The same for weights under their names, in any order."""
    digest = blake2b(digest_size=8)
    for name, weight in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name} {tuple(weight.shape)} {_sums(weight.detach())};".encode())
    return digest.hexdigest()


def _sums(weight: Tensor) -> list[int]:
    """Two sums of the bits of each block as integers: plain, and each times its place in it.

    Sums of integers are exact, so their order does not matter; those of floats round.
    """
    places = torch.arange(1, BLOCK + 1, device=weight.device)
    sums: list[Tensor] = []
    for block in weight.reshape(-1).split(BLOCK // 2):
        exact = block if block.element_size() >= 4 else block.float()
        bits = exact.view(torch.int32).long()
        sums += [bits.sum(), bits.mul_(places[: len(bits)]).sum()]
    return torch.stack(sums).tolist() if sums else []
