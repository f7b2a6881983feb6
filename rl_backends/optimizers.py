"""What learns in a run: the policy and, where the backend asks for one, the critic beside it."""

from __future__ import annotations

from typing import Any

import torch

from stepmark.training.critic import Critic, make_critic
from stepmark.training.optimizer import adamw, learning_rate, set_learning_rate

from .backend import Backend
from .config import AlgorithmConfig

__all__ = ["critic_of", "optimizer_of", "set_rates"]


def optimizer_of(model: Any, config: AlgorithmConfig, rate: float) -> torch.optim.Optimizer:
    """AdamW with the settings of a run, at this first learning rate."""
    return adamw(
        model,
        learning_rate=rate,
        weight_decay=config.weight_decay,
        betas=(config.adam_beta1, config.adam_beta2),
        epsilon=config.adam_epsilon,
    )


def critic_of(backend: Backend, policy: Any) -> tuple[Critic, torch.optim.Optimizer] | None:
    """The critic that the backend asks for, with an optimizer of its own; None without one."""
    if "critic" not in backend.needs:
        return None
    config = backend.config
    critic = make_critic(policy, shared=config.critic == "shared")
    return critic, optimizer_of(critic, config, config.critic_learning_rate)


def set_rates(
    step: int,
    config: Any,
    policy: torch.optim.Optimizer,
    critic: torch.optim.Optimizer | None = None,
) -> float:
    """The policy's learning rate at a step; the critic's rises and falls with it."""
    rate = learning_rate(
        step, config.steps, config.learning_rate, config.warmup_steps, config.schedule
    )
    set_learning_rate(policy, rate)
    if critic is not None:
        scale = rate / config.learning_rate
        set_learning_rate(critic, config.critic_learning_rate * scale)
    return rate
