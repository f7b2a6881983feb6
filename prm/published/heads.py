"""Heads of published models that transformers does not have; each gives two logits per state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["TwoLayerHead", "ValueHead"]


class ValueHead(nn.Module):
    """One number per state; beside it 0, so that the softmax of both is its sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.summary = nn.Linear(width, 1)

    def forward(self, states_SD: Tensor) -> Tensor:
        """Logits (0, value)."""
        value_S1 = self.summary(states_SD)
        return torch.cat([torch.zeros_like(value_S1), value_S1], dim=-1)


class TwoLayerHead(nn.Sequential):
    """Two linear layers and a ReLU between them, to two classes: wrong and right."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
