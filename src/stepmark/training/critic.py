"""The critic of PPO: what reward is to be expected before each token.

Shapes: ``N`` sampled tokens of all samples, ``D`` hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stepmark.errors import ConfigError

from .forward import body_batches, hidden_states
from .head import split_model
from .lora import copy_of, is_adapted
from .sample import TrainingSample

__all__ = ["Critic", "critic_values", "make_critic", "token_values"]


class Critic(nn.Module):
    """The body of a causal model under a head of one number.

    Args:
        body: gives hidden states; the critic's own, or the policy's when it is shared.
        width: of the hidden states.
        is_shared: the body belongs to the policy; then only the head is the critic's.
    """

    def __init__(self, body: nn.Module, width: int, is_shared: bool) -> None:
        super().__init__()
        self.body = _Borrowed(body) if is_shared else body
        self.is_shared = is_shared
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class _Borrowed:
    """A module that another one owns: not among the parameters of the one that borrows it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def make_critic(policy: Any, shared: bool = False) -> Critic:
    """A critic on a copy of the policy's body, or on the policy's body itself.

    Its head starts at zero: the first values are 0, whatever the body says. Beside a policy with
    adapters, its copy has adapters of its own and shares the rest; its head is float32.

    Raises:
        ConfigError: the model's body and head cannot be told apart.
    """
    split = split_model(policy)
    if split is None:
        raise ConfigError(
            f"A {type(policy).__name__} has no separate body that a critic could stand on. "
            'Choose a backend without a critic: algorithm.backend = "grpo".'
        )
    body = split.body if shared else copy_of(split.body)
    weight = next(policy.parameters())
    width = int(split.head.weight.shape[1])  # type: ignore[union-attr,index]
    critic = Critic(body, width, shared)
    critic.head.to(weight.device, torch.float32 if is_adapted(policy) else weight.dtype)
    return critic.eval()


def token_values(critic: Critic, samples: Sequence[TrainingSample]) -> Float[Tensor, " N"]:
    """The expected reward before each sampled token; gradient flows.

    The value at a token is read from the state that predicts it: the state before that action.
    """
    hidden_ND = hidden_states(_body(critic), samples)
    return critic.head(hidden_ND.to(critic.head.weight.dtype)).squeeze(-1).float()


@torch.no_grad()
def critic_values(
    critic: Critic, samples: Sequence[TrainingSample], token_budget: int
) -> list[Tensor]:
    """Values without gradient: one float32 CPU tensor per sample, in the given order."""
    found: dict[int, Tensor] = {}
    for rows in body_batches(_body(critic), samples, token_budget):
        values = token_values(critic, rows).split([len(row.ids) for row in rows])
        for row, value in zip(rows, values, strict=True):
            found[id(row)] = value.cpu().clone()
    return [found[id(sample)] for sample in samples]


def _body(critic: Critic) -> Any:
    return critic.body.module if isinstance(critic.body, _Borrowed) else critic.body
