"""The optimizer of a run, and its learning rate as a pure function of the step."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn

__all__ = ["Schedule", "adamw", "learning_rate", "set_learning_rate"]

Schedule = Literal["constant", "linear", "cosine"]


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> torch.optim.AdamW:
    """AdamW (arXiv:1711.05101) over the trainable weights; only matrices decay.

    Args:
        model: its parameters that require a gradient are trained.
        learning_rate: the first rate; `set_learning_rate` changes it.
        weight_decay: decoupled decay of tensors with two or more axes.
        betas: decays of the running means of the gradient and of its square.
        epsilon: added to the root of the latter.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=learning_rate, betas=betas, eps=epsilon
    )


def learning_rate(step: int, steps: int, peak: float, warmup: int, schedule: Schedule) -> float:
    """The rate of a step, from 1 to ``steps``; without state, so a resumed run cannot drift.

    It rises linearly to the peak at step ``warmup``; then it stays, or falls along a line or half
    a cosine to reach 0 just after the last step.

    >>> [learning_rate(step, 4, 1.0, 2, "linear") for step in (1, 2, 3, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step <= warmup:
        return peak * step / warmup
    if schedule == "constant":
        return peak
    done = (step - 1 - warmup) / max(steps - warmup, 1)
    return peak * (1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of weights this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
