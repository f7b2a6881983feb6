"""What one optimizer step learns from: sampled tokens with what was said of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

__all__ = ["TrainingSample", "end_to_end"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSample:
    """One completion behind its prompt, ragged: nothing is padded outside a forward pass.

    The tensors are 1-D, float32, on the CPU, with one number per sampled token (the end token
    included); None where the backend does not need them.
    """

    prompt_ids: tuple[int, ...]
    """At least one token: the first sampled token is predicted from its last one."""
    ids: tuple[int, ...]
    """The sampled tokens, never empty; each is trained."""
    group: int = 0
    """Samples of one problem share a number; minibatches keep groups whole."""
    old_logps: Tensor | None = None
    """Log-probs under the policy that sampled, in nats."""
    ref_logps: Tensor | None = None
    """Log-probs under the reference, in nats."""
    advantages: Tensor | None = None
    """Unitless."""
    values: Tensor | None = None
    """What the critic expected before each token, when the sample was made, in reward units."""
    returns: Tensor | None = None
    """What the critic is to expect before each token, in reward units."""
    pair: int | None = None
    """Two samples of one preference share a number; they are never divided."""
    is_chosen: bool = False
    """Of a pair: whether this is the preferred completion."""

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.ids:
            raise ValueError(
                f"A training sample has {len(self.prompt_ids)} prompt tokens and {len(self.ids)} "
                "sampled tokens; both must be at least 1."
            )
        for name in ("old_logps", "ref_logps", "advantages", "values", "returns"):
            value: Tensor | None = getattr(self, name)
            if value is not None and tuple(value.shape) != (len(self.ids),):
                raise ValueError(
                    f"{name} has shape {tuple(value.shape)} for {len(self.ids)} sampled tokens; "
                    "it must hold one number per sampled token."
                )

    @property
    def length(self) -> int:
        """Tokens of prompt and completion together."""
        return len(self.prompt_ids) + len(self.ids)

    def to_row(self) -> dict[str, Any]:
        """The sample in plain values and tensors, as files keep it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The sample that `to_row` described."""
        return cls(**row)


def end_to_end(samples: Sequence[TrainingSample], name: str, like: Tensor) -> Tensor:
    """One tensor of the samples as a forward pass lays out its tokens, as N numbers.

    Args:
        samples: of a micro-batch, in order.
        name: which tensor: ``old_logps``, ``advantages`` and so on.
        like: its dtype and device are taken.

    Raises:
        ValueError: a sample lacks that tensor.
    """
    rows: list[Tensor | None] = [getattr(sample, name) for sample in samples]
    present = [row for row in rows if row is not None]
    if len(present) != len(rows):
        raise ValueError(
            f"{len(rows) - len(present)} of {len(rows)} training samples have no {name}, which "
            "their loss needs; the backend's prepare() must set it."
        )
    return torch.cat(present).to(like)
