"""The critic: its values have the places of log-probs, and a shared body stays the policy's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from stepmark.errors import ConfigError
from stepmark.training import TrainingSample
from stepmark.training.critic import critic_values, make_critic, token_values

SAMPLES = [
    TrainingSample((1, 5, 6), (7, 8, 2)),
    TrainingSample((1,), (9, 2)),
    TrainingSample((1, 3, 4, 5, 6, 7), (10, 11, 12, 13, 2)),
]


def policy(kind: str = "llama") -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        small = {"vocab_size": 41, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
        return GPT2LMHeadModel(GPT2Config(**small, bos_token_id=1, eos_token_id=2)).eval()
    config = LlamaConfig(
        vocab_size=41,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def critic_with_opinions(model: Any, shared: bool = False) -> Any:
    critic = make_critic(model, shared=shared)
    torch.manual_seed(1)
    nn.init.normal_(critic.head.weight)
    return critic


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("shared", [False, True])
def test_first_values_are_zero_one_per_sampled_token(kind: str, shared: bool) -> None:
    values_N = token_values(make_critic(policy(kind), shared=shared), SAMPLES)
    assert values_N.shape == (3 + 2 + 5,)
    assert values_N.dtype == torch.float32
    assert not values_N.any()


@pytest.mark.parametrize("shared", [False, True])
def test_a_value_is_of_the_state_before_its_token(shared: bool) -> None:
    critic = critic_with_opinions(policy(), shared)
    first = SAMPLES[2]
    changed = replace(first, ids=(*first.ids[:2], 30, *first.ids[3:]))
    with torch.no_grad():
        one, two = token_values(critic, [first]), token_values(critic, [changed])
    assert torch.equal(one[:3], two[:3]), "token 2 changes no value up to its own"
    assert (one[3:] != two[3:]).all(), "and all values behind it"


def test_values_do_not_depend_on_the_company_or_the_token_budget() -> None:
    critic = critic_with_opinions(policy())
    alone = [critic_values(critic, [sample], 100)[0] for sample in SAMPLES]
    for budget in (1, 9, 1000):
        together = critic_values(critic, SAMPLES, budget)
        for row, one in zip(together, alone, strict=True):
            assert torch.allclose(row, one, atol=1e-5)
            assert not row.requires_grad
    assert critic_values(critic, [], 100) == []


def test_a_critic_of_its_own_moves_without_the_policy() -> None:
    model = policy()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    critic = critic_with_opinions(model)
    optimizer = torch.optim.AdamW(critic.parameters(), lr=0.1)
    first = token_values(critic, SAMPLES)
    first.sum().backward()
    optimizer.step()
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(before[name], w) for name, w in model.state_dict().items())
    assert not torch.allclose(first, token_values(critic, SAMPLES))


def test_a_shared_body_belongs_to_the_policy_and_gets_the_gradient() -> None:
    model = policy()
    critic = critic_with_opinions(model, shared=True)
    assert set(critic.state_dict()) == {"head.weight", "head.bias"}
    assert len(list(critic.parameters())) == 2
    token_values(critic, SAMPLES).sum().backward()
    body = [w for name, w in model.named_parameters() if not name.startswith("lm_head")]
    assert all(weight.grad is not None and weight.grad.any() for weight in body)
    assert critic.head.weight.grad is not None
    with torch.no_grad():
        before = token_values(critic, SAMPLES)
        body[0].add_(1.0)
        assert not torch.allclose(before, token_values(critic, SAMPLES))


def test_a_model_without_a_body_of_its_own_has_no_critic() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 3))

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.weight[input_ids]

    with pytest.raises(ConfigError, match=r"Whole has no separate body(.|\n)*grpo"):
        make_critic(Whole())
