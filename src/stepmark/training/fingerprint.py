"""A short name for the weights of a model: it tells policies apart, and proves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from torch import Tensor, nn

__all__ = ["fingerprint", "fingerprint_of"]


def fingerprint(model: nn.Module) -> str:
    """A short name for the weights of a model: two float64 sums of each tensor, hashed.

    Cheap enough to take at every step.
    """
    return fingerprint_of(model.named_parameters())


def fingerprint_of(named: Iterable[tuple[str, Tensor]]) -> str:
    """The same for weights under their names, in any order."""
    digest = blake2b(digest_size=8)
    for name, weight in sorted(named, key=lambda pair: pair[0]):
        values = weight.detach().double()
        digest.update(f"{name} {float(values.sum())!r} {float(values.abs().sum())!r};".encode())
    return digest.hexdigest()
