from __future__ import annotations

import pytest
import torch

from stepmark.errors import ConfigError
from stepmark.training.forward import token_logps
from stepmark.training.precision import (
    Precision,
    changed_share,
    logps_tolerance,
    precision_of,
    some_weights,
)
from stepmark.training.sample import TrainingSample
from stepmark.training.tolerances import LOGPS_BFLOAT16, LOGPS_FLOAT32

SAMPLES = [
    TrainingSample((3, 4, 5), (6, 7, 1), group=0),
    TrainingSample((3, 4, 5), (8, 1), group=0),
    TrainingSample((9, 4), (7, 7, 7, 1), group=1),
]


def tiny(dropout: float = 0.0):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=dropout,
    )
    return LlamaForCausalLM(config).float().eval()


def gradients(model, precision: Precision) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    with precision.forward(), precision.recomputing(model):
        loss = -token_logps(model, SAMPLES).logps_N.sum()
    loss.backward()
    return float(loss.detach()), {
        name: weight.grad.clone() for name, weight in model.named_parameters()
    }


def distance(one, two) -> float:
    difference = sum(float((one[name] - two[name]).square().sum()) for name in one)
    return (difference / sum(float(grad.square().sum()) for grad in one.values())) ** 0.5


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_layers_that_are_computed_again_give_the_same_gradients(dropout) -> None:
    """Dropout included: it is off, though layers are recomputed in training mode only."""
    loss, plain = gradients(tiny(dropout), Precision())
    model = tiny(dropout)
    again, recomputed = gradients(model, precision_of(model, "none", checkpointing=True))
    assert again == loss
    assert distance(plain, recomputed) < 1e-6
    assert not any(module.training for module in model.modules())


def test_layers_are_computed_again_in_the_backward_pass_and_only_then() -> None:
    model = tiny()
    gradients(model, Precision())  # the first pass also tries what layouts the model takes
    calls: list[int] = []
    layer = model.model.layers[1].mlp
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    gradients(model, Precision())
    assert len(calls) == 1
    gradients(model, precision_of(model, "none", checkpointing=True))
    assert len(calls) == 3


@pytest.mark.parametrize("checkpointing", [False, True])
def test_autocast_keeps_weights_and_gradients_in_float32_and_near_those_of_float32(
    checkpointing,
) -> None:
    _, exact = gradients(tiny(), Precision())
    model = tiny()
    precision = precision_of(model, "bfloat16", checkpointing)
    _, cast = gradients(model, precision)
    assert precision.autocast == torch.bfloat16
    assert {grad.dtype for grad in cast.values()} == {torch.float32}
    assert 1e-6 < distance(exact, cast) < 3e-2


def test_autocast_learns_after_a_forward_pass_without_gradient() -> None:
    """A cast that was kept from there would cut the gradient off; a stale one would be wrong."""
    model = tiny()
    precision = precision_of(model, "bfloat16")
    with precision.sampling(), torch.no_grad():
        before = token_logps(model, SAMPLES).logps_N
    with precision.forward(), torch.no_grad():
        token_logps(model, SAMPLES)
    _, found = gradients(model, precision)
    assert all(float(grad.abs().sum()) > 0 for grad in found.values())
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    with precision.sampling(), torch.no_grad():
        assert not torch.equal(token_logps(model, SAMPLES).logps_N, before)


def test_auto_changes_nothing_on_a_cpu_and_bfloat16_weights_need_no_cast() -> None:
    assert precision_of(tiny(), "auto").autocast is None
    assert precision_of(tiny().to(torch.bfloat16), "bfloat16").autocast is None


def test_log_probs_may_differ_more_inside_of_autocast() -> None:
    model = tiny()
    assert logps_tolerance(model) == LOGPS_FLOAT32
    with precision_of(model, "bfloat16").sampling():
        assert logps_tolerance(model) == LOGPS_BFLOAT16


def test_a_model_that_cannot_recompute_is_refused() -> None:
    model = tiny()
    model.supports_gradient_checkpointing = False
    with pytest.raises(ConfigError, match="gradient_checkpointing is true, and a Llama"):
        precision_of(model, checkpointing=True)


def test_the_share_of_changed_weights_counts_tensors_by_their_size() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(100, 90, bias=False), torch.nn.Linear(90, 10))
    before = some_weights(model)
    assert changed_share(before, model) == 0
    with torch.no_grad():
        model[0].weight += 1
    assert changed_share(before, model) == 9000 / (9000 + 900 + 10)


def test_a_small_step_moves_few_bfloat16_weights_and_all_of_float32() -> None:
    shares = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 64, bias=False).to(dtype)
        before = some_weights(model)
        with torch.no_grad():
            model.weight += 1e-6
        shares.append(changed_share(before, model))
    assert shares[0] > 0.99
    assert shares[1] < 0.05
