"""The head: oracle values, and chunks that change neither numbers nor gradients."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from stepmark.training.head import HeadOut, logps_of_hidden, logps_of_logits

# log softmax(z / T) and entropy for z = (2, 1, 0), worked out by hand in float64.
TABLE = [
    (1.0, [-0.407605964444, -1.40760596444, -2.40760596444], 0.83239558184),
    (0.5, [-0.1429316285, -2.1429316285, -4.1429316285], 0.441057444058),
]


def check(logits: list[float], temperature: float, wanted: list[float], entropy: float) -> None:
    logits_NV = torch.tensor(logits).expand(len(logits), -1)
    out = logps_of_logits(logits_NV, torch.arange(len(logits)), temperature, True)
    assert out.entropies_N is not None
    assert torch.allclose(out.logps_N, torch.tensor(wanted), atol=1e-6)
    assert torch.allclose(out.entropies_N, torch.tensor(entropy), atol=1e-6)


@pytest.mark.parametrize(("temperature", "wanted", "entropy"), TABLE)
def test_logits_are_divided_by_the_temperature_first(
    temperature: float, wanted: list[float], entropy: float
) -> None:
    check([2.0, 1.0, 0.0], temperature, wanted, entropy)


def test_log_probs_agree_with_the_oracle_file() -> None:
    path = Path(os.environ.get("STEPMARK_DATA", "")) / ".." / "oracle" / "rl_oracle.json"
    if not path.is_file():
        pytest.skip("no oracle beside STEPMARK_DATA; the table above holds the same facts")
    cases = [c for c in json.loads(path.read_text())["cases"] if c["id"].startswith("logprob/")]
    assert len(cases) >= 2
    for case in cases:
        given, wanted = case["inputs"], case["expected"]
        check(given["logits"], given["temperature"], wanted["logprobs"], wanted["entropy"])


@pytest.mark.parametrize("chunk", [1, 3, 7, None])
def test_chunks_change_neither_log_probs_nor_gradients(chunk: int | None) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 23, bias=False)
    hidden_ND = torch.randn(7, 8, requires_grad=True)
    targets_N = torch.randint(23, (7,))
    whole = torch.log_softmax(head(hidden_ND) / 0.7, -1).gather(1, targets_N[:, None])[:, 0]
    wanted = torch.autograd.grad(whole.square().sum(), [hidden_ND, head.weight])
    out = logps_of_hidden(
        hidden_ND, head, targets_N, temperature=0.7, vocabulary=23, chunk=chunk, with_entropy=True
    )
    given = torch.autograd.grad(out.logps_N.square().sum(), [hidden_ND, head.weight])
    assert torch.allclose(out.logps_N, whole, atol=1e-6)
    for one, other in zip(given, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_gradient_of_entropies_is_that_of_autograd(chunk: int, bias: bool) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 23, bias=bias)
    hidden_ND, targets_N = torch.randn(7, 8, requires_grad=True), torch.randint(23, (7,))
    inputs = [hidden_ND, *head.parameters()]
    plain = logps_of_logits(head(hidden_ND), targets_N, 0.7, True)
    out = logps_of_hidden(
        hidden_ND, head, targets_N, temperature=0.7, with_entropy=True, vocabulary=23, chunk=chunk
    )
    assert out.entropies_N is not None
    assert plain.entropies_N is not None
    assert torch.allclose(out.entropies_N, plain.entropies_N, atol=1e-6)
    weights_N = torch.linspace(-1, 2, 7)
    for mix in (0.0, 1.0):
        given, wanted = (
            torch.autograd.grad(_mixture(made, weights_N, mix), inputs, retain_graph=True)
            for made in (out, plain)
        )
        for one, other in zip(given, wanted, strict=True):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def _mixture(made: HeadOut, weights_N: torch.Tensor, mix: float) -> torch.Tensor:
    assert made.entropies_N is not None
    both_N = made.entropies_N + mix * made.logps_N if mix else made.entropies_N
    return (weights_N * both_N).sum()


def test_sums_over_chunks_are_kept_in_float32() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(16, 50, bias=False).bfloat16()
    hidden_ND, targets_N = torch.randn(400, 16).bfloat16(), torch.randint(50, (400,))
    exact = torch.nn.Linear(16, 50, bias=False)
    exact.weight.data = head.weight.data.float()
    logps = torch.log_softmax(exact(hidden_ND.float()), -1).gather(1, targets_N[:, None])
    [wanted] = torch.autograd.grad(logps.sum(), [exact.weight])
    out = logps_of_hidden(hidden_ND, head, targets_N, temperature=1.0, vocabulary=50, chunk=4)
    assert out.logps_N.dtype == torch.float32
    [given] = torch.autograd.grad(out.logps_N.sum(), [head.weight])
    assert (given.float() - wanted).abs().max() <= 1e-2 * wanted.abs().max()
