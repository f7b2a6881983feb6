"""The head: oracle values, and chunks that change neither numbers nor gradients."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from stepmark.training.head import logps_of_hidden, logps_of_logits

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
