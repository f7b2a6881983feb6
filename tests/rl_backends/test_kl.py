"""Laws of the estimators of divergence, in exact expectation over all tokens of a vocabulary."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepmark.rl_backends.kl import LIMIT_NATS, kl_is_clamped, kl_tokens

logits = st.lists(st.floats(-2, 2), min_size=4, max_size=4)
estimators = st.sampled_from(["k1", "k2", "k3", "k3-unbiased"])
wide = st.floats(-800, 800)


def doubles(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logps(values) -> torch.Tensor:
    return torch.log_softmax(doubles(values), -1)


def gradient(values, loss) -> list[float]:
    leaf = doubles(values).requires_grad_()
    loss(torch.log_softmax(leaf, -1)).backward()
    return leaf.grad.tolist()


@given(logits, logits)
def test_the_unbiased_loss_has_the_gradient_of_the_divergence(pi, ref) -> None:
    chances, reference = logps(pi).exp(), logps(ref)
    found = gradient(pi, lambda now: (chances * kl_tokens(now, reference, "k3-unbiased")).sum())
    true = gradient(pi, lambda now: (now.exp() * (now - reference)).sum())
    assert found == pytest.approx(true, abs=1e-9)


@given(logits, logits)
def test_k1_and_k3_have_the_divergence_as_their_mean_and_k2_its_gradient(pi, ref) -> None:
    chances, reference = logps(pi).exp(), logps(ref)
    true = (chances * (logps(pi) - reference)).sum().item()
    for estimator in ("k1", "k3"):
        mean = (chances * kl_tokens(logps(pi), reference, estimator)).sum().item()
        assert mean == pytest.approx(true, abs=1e-9)
    found = gradient(pi, lambda now: (chances * kl_tokens(now, reference, "k2")).sum())
    expected = gradient(pi, lambda now: (now.exp() * (now - reference)).sum())
    assert found == pytest.approx(expected, abs=1e-9)


@given(logits, logits)
def test_the_loss_of_eq_4_has_the_gradient_of_the_other_direction(pi, ref) -> None:
    chances, reference = logps(pi).exp(), logps(ref)
    found = gradient(pi, lambda now: (chances * kl_tokens(now, reference, "k3")).sum())
    reverse = gradient(pi, lambda now: (reference.exp() * (reference - now)).sum())
    assert found == pytest.approx(reverse, abs=1e-9)


@given(logits, logits, logits)
def test_with_the_ratio_it_is_the_divergence_also_on_an_older_policys_tokens(pi, old, ref) -> None:
    sampled, reference = logps(old), logps(ref)

    def loss(now):
        ratio = (now - sampled).exp()
        return (sampled.exp() * kl_tokens(now, reference, "k3-unbiased", ratio_N=ratio)).sum()

    true = (logps(pi).exp() * (logps(pi) - reference)).sum()
    assert loss(logps(pi)).item() == pytest.approx(true.item(), abs=1e-9)
    expected = gradient(pi, lambda now: (now.exp() * (now - reference)).sum())
    assert gradient(pi, loss) == pytest.approx(expected, abs=1e-9)


@given(logits, logits)
def test_the_unbiased_form_has_the_value_of_k3(pi, ref) -> None:
    values = [kl_tokens(logps(pi), logps(ref), name) for name in ("k3", "k3-unbiased")]
    assert torch.equal(*values)


@given(logits, logits, estimators)
def test_the_reference_gets_no_gradient(pi, ref, estimator) -> None:
    leaves = [doubles(values).requires_grad_() for values in (pi, ref)]
    kl_tokens(*(torch.log_softmax(leaf, -1) for leaf in leaves), estimator).sum().backward()
    assert leaves[1].grad is None


@given(logits, estimators)
def test_a_policy_does_not_diverge_from_itself(pi, estimator) -> None:
    leaf = logps(pi).requires_grad_()
    kl = kl_tokens(leaf, logps(pi), estimator)
    assert not kl.detach().any()
    if estimator != "k1":
        kl.sum().backward()
        assert not leaf.grad.any()


@given(st.floats(-3, 3), st.sampled_from(["k2", "k3"]))
def test_the_gradient_is_that_of_finite_differences(d, estimator) -> None:
    leaf = doubles([-1.0]).requires_grad_()
    ref = doubles([-1.0 + d])
    kl_tokens(leaf, ref, estimator).sum().backward()
    high, low = (kl_tokens(doubles([-1.0 + e]), ref, estimator).item() for e in (1e-6, -1e-6))
    assert (high - low) / 2e-6 == pytest.approx(leaf.grad.item(), abs=1e-6)


@given(wide, wide, estimators)
def test_an_absurd_token_is_finite_and_gives_no_gradient(one, two, estimator) -> None:
    leaf, ref = doubles([one]).requires_grad_(), doubles([two])
    kl = kl_tokens(leaf, ref, estimator)
    assert bool(kl.isfinite())
    kl.sum().backward()
    assert bool(leaf.grad.isfinite())
    clamped = bool(kl_is_clamped(leaf, ref))
    assert clamped == (abs(two - one) > LIMIT_NATS)
    if clamped:
        assert leaf.grad.item() == 0.0
