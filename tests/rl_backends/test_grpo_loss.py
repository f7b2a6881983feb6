from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.rl_backends import Grpo, GrpoConfig, Models, Sft, kl_tokens
from stepmark.rl_backends.clipping import clipped_objective, importance_ratio
from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Problem, Prompt, Rollout

# The case grpo_loss/two_outputs, by hand: two completions of one problem, of four and two tokens.
PI = [[0.5, 0.4, 0.3, 0.9], [0.2, 0.6]]
OLD = [[0.5, 0.5, 0.2, 0.9], [0.3, 0.6]]
REF = [[0.4, 0.4, 0.3, 0.6], [0.3, 0.5]]
ADVANTAGES = [1.0, -1.0]


def rows(values: list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor(row, dtype=torch.float64).log() for row in values]


def samples(advantages=ADVANTAGES, old=OLD, ref=REF) -> list[TrainingSample]:
    return [
        TrainingSample((1,), tuple(range(len(o))), n, o, r, torch.full((len(o),), a).double())
        for n, (o, r, a) in enumerate(zip(rows(old), rows(ref), advantages, strict=True))
    ]


def loss_of(backend, micros, logps, weights=None):
    """Summed terms over micro-batches, each a list of places, and their gradient by row."""
    given_samples = samples_of[id(backend)]
    weights = weights or backend.weights(given_samples)
    leaves = [row.clone().requires_grad_() for row in logps]
    total = torch.zeros((), dtype=torch.float64)
    for micro in micros:
        out = TokenOut(
            torch.cat([leaves[i] for i in micro]), None, tuple(len(leaves[i]) for i in micro)
        )
        losses = backend.losses(out, [given_samples[i] for i in micro], weights)
        total = total + sum(losses.terms.values())
    total.backward()
    return float(total.detach()), [leaf.grad.tolist() for leaf in leaves]


samples_of: dict[int, list[TrainingSample]] = {}


def grpo(chosen=None, **settings_) -> Grpo:
    backend = Grpo(GrpoConfig(**settings_))
    samples_of[id(backend)] = chosen or samples()
    return backend


@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        ({}, -0.0484217255494),
        ({"aggregation": "token-mean"}, -0.365296899279),
        ({"aggregation": "constant", "constant_length": 4}, -0.273972674459),
        ({"beta": 0.0}, -0.05),
    ],
)
def test_loss_of_two_outputs(settings_, expected) -> None:
    backend = grpo(**settings_)
    assert loss_of(backend, [[0, 1]], rows(PI))[0] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("aggregation", "key", "gradient"),
    [
        ("sequence-mean", "paper seq-mean-token-mean", "grad_logp seq-mean-token-mean"),
        (
            "token-mean",
            "token-mean (DAPO, TRL default 'dapo', verl default)",
            "grad_logp token-mean",
        ),
    ],
)
def test_oracle_two_outputs(oracle, aggregation, key, gradient) -> None:
    expected = oracle("grpo_loss/two_outputs")["expected"]
    backend = grpo(aggregation=aggregation)
    value, grads = loss_of(backend, [[0, 1]], rows(PI))
    assert value == pytest.approx(expected[key], abs=1e-10)
    assert grads[0] == pytest.approx(expected[gradient][0], abs=1e-8)
    assert grads[1] == pytest.approx(expected[gradient][1][:2], abs=1e-8)


def test_oracle_micro_batches(oracle) -> None:
    expected = oracle("grpo_loss/micro_batches")["expected"]
    backend = grpo(aggregation="token-mean")
    assert loss_of(backend, [[0], [1]], rows(PI))[0] == pytest.approx(expected["right"], abs=1e-10)


def test_on_policy_the_value_is_minus_the_mean_advantage_and_the_gradient_is_not_zero() -> None:
    backend = grpo(beta=0.0)
    value, grads = loss_of(backend, [[0, 1]], rows(OLD))
    assert value == pytest.approx(0.0, abs=1e-12)
    assert grads == [[-0.125] * 4, [0.25] * 2]
    token_mean = grpo(beta=0.0, aggregation="token-mean")
    assert loss_of(token_mean, [[0, 1]], rows(OLD))[0] == pytest.approx(-1 / 3)


def test_with_the_reference_refreshed_the_loss_is_that_without_kl() -> None:
    same = grpo(samples(ref=OLD))
    without = grpo(beta=0.0)
    assert loss_of(same, [[0, 1]], rows(OLD))[0] == loss_of(without, [[0, 1]], rows(OLD))[0]
    assert float(kl_tokens(rows(OLD)[0], rows(OLD)[0]).abs().max()) == 0.0


def random_case(seed: int) -> tuple[list[TrainingSample], list[torch.Tensor]]:
    rng = random.Random(seed)
    made, logps = [], []
    for group in range(rng.randint(1, 4)):
        for _ in range(rng.randint(1, 4)):
            size = rng.randint(1, 7)
            draw = [[-3 * rng.random() for _ in range(size)] for _ in range(3)]
            pi, old, ref = (torch.tensor(row, dtype=torch.float64) for row in draw)
            advantage = torch.full((size,), rng.uniform(-2, 2), dtype=torch.float64)
            made.append(TrainingSample((1,), tuple(range(size)), group, old, ref, advantage))
            logps.append(pi)
    return made, logps


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["sequence-mean", "token-mean", "constant", "sft"]),
    st.randoms(use_true_random=False),
)
def test_any_split_into_micro_batches_leaves_loss_and_gradient_unchanged(seed, kind, rng) -> None:
    made, logps = random_case(seed)
    if kind == "sft":
        backend = Sft()
        samples_of[id(backend)] = made
    else:
        backend = grpo(made, aggregation=kind, constant_length=5)
    order = list(range(len(made)))
    whole = loss_of(backend, [order], logps)
    rng.shuffle(order)
    cuts = sorted(rng.sample(range(1, len(order)), rng.randint(0, len(order) - 1))) if order else []
    micros = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    parts = loss_of(backend, micros, logps)
    assert parts[0] == pytest.approx(whole[0], abs=1e-9)
    for one, two in zip(whole[1], parts[1], strict=True):
        assert one == pytest.approx(two, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_gradient_is_that_of_finite_differences(seed) -> None:
    made, logps = random_case(seed)
    backend = grpo(made, clip_low=0.9, clip_high=50.0)
    places = [list(range(len(made)))]
    gradient = loss_of(backend, places, logps)[1]
    for sign in (1, -1):
        moved = [row.clone() for row in logps]
        moved[0][0] += sign * 1e-6
        if sign == 1:
            high = loss_of(backend, places, moved)[0]
        else:
            low = loss_of(backend, places, moved)[0]
    assert (high - low) / 2e-6 == pytest.approx(gradient[0][0], abs=1e-4)


def test_a_positive_advantage_makes_its_tokens_likelier() -> None:
    _, grads = loss_of(grpo(beta=0.0), [[0, 1]], rows(OLD))
    assert all(g < 0 for g in grads[0])
    assert all(g > 0 for g in grads[1])


def test_zero_advantage_gives_no_policy_gradient() -> None:
    backend = grpo(samples(advantages=[0.0, 0.0]), beta=0.0)
    value, grads = loss_of(backend, [[0, 1]], rows(PI))
    assert value == 0.0
    assert all(g == 0 for row in grads for g in row)


@pytest.mark.parametrize(
    ("advantage", "objective", "gradient"),
    [
        (1.0, [0.5, 0.8, 0.9, 1, 1.1, 1.2, 1.2, 1.2], [0.5, 0.8, 0.9, 1, 1.1, 1.2, 0, 0]),
        (
            -1.0,
            [-0.8, -0.8, -0.9, -1, -1.1, -1.2, -1.5, -4],
            [0, -0.8, -0.9, -1, -1.1, -1.2, -1.5, -4],
        ),
    ],
)
def test_clip_by_hand(advantage, objective, gradient) -> None:
    ratio = torch.tensor([0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 4.0], dtype=torch.float64)
    ratio.requires_grad_()
    clipped = clipped_objective(ratio, torch.full((8,), advantage).double(), 0.2, 0.2)
    assert clipped.objective_N.tolist() == pytest.approx(objective)
    clipped.objective_N.sum().backward()
    assert (ratio.grad * ratio).tolist() == pytest.approx(gradient)


@pytest.mark.parametrize("sign", ["+1", "-1"])
def test_oracle_clip(oracle, sign) -> None:
    case = oracle(f"clip/adv{sign}")
    ratio = torch.tensor(case["inputs"]["ratio"], dtype=torch.float64, requires_grad=True)
    advantages = torch.full((8,), case["inputs"]["advantage"], dtype=torch.float64)
    clipped = clipped_objective(ratio, advantages, 0.2, 0.2)
    assert clipped.objective_N.tolist() == pytest.approx(case["expected"]["objective"])
    clipped.objective_N.sum().backward()
    gradient = (ratio.grad * ratio).tolist()
    assert gradient == pytest.approx(case["expected"]["grad_objective_wrt_logp"])
    higher = clipped_objective(ratio, advantages, 0.2, 0.28)
    assert higher.objective_N.tolist() == pytest.approx(case["expected"]["clip_higher_0.28"])


def test_kl_estimators_by_hand() -> None:
    pi, ref = (torch.tensor([v], dtype=torch.float64).log() for v in (0.5, 0.25))
    assert float(kl_tokens(pi, ref, "k1")) == pytest.approx(math.log(2))
    assert float(kl_tokens(pi, ref, "k2")) == pytest.approx(math.log(2) ** 2 / 2)
    assert float(kl_tokens(pi, ref, "k3")) == pytest.approx(0.5 - math.log(0.5) - 1)


def test_oracle_kl_tokens(oracle) -> None:
    case = oracle("kl/tokens")
    pi = torch.tensor(case["inputs"]["pi"], dtype=torch.float64).log().requires_grad_()
    ref = torch.tensor(case["inputs"]["pi_ref"], dtype=torch.float64).log()
    names = {
        "k1": "dk1_dlogpi",
        "k2": "dk2_dlogpi = log pi - log pi_ref",
        "k3": "dk3_dlogpi = 1 - pi_ref/pi",
    }
    for estimator, name in names.items():
        value = kl_tokens(pi, ref, estimator)
        assert value.tolist() == pytest.approx(case["expected"][estimator], abs=1e-10)
        (gradient,) = torch.autograd.grad(value.sum(), pi)
        assert gradient.tolist() == pytest.approx(case["expected"][name], abs=1e-10)


@given(st.floats(-800, 800), st.floats(-800, 800))
def test_no_token_makes_kl_or_ratio_infinite(one, two) -> None:
    a, b = torch.tensor([one]).double(), torch.tensor([two]).double()
    assert bool(kl_tokens(a, b).isfinite())
    assert float(kl_tokens(a, b)) >= 0
    assert bool(importance_ratio(a, b).isfinite())


def marked(reward: float | None, finish: str = "stop", size: int = 2) -> Marked:
    prompt = Prompt(Problem("p", "?", "1"), (1,), "?")
    rollout = Rollout(prompt, 0, tuple(range(size)), (-1.0,) * size, finish, "x", 0)  # type: ignore[arg-type]
    return Marked(rollout, {}, reward)


def test_truncated_completions_can_be_left_out_of_loss_and_denominators() -> None:
    group = (marked(1.0), marked(0.0, "length", 5), marked(0.0))
    keep = Grpo(GrpoConfig(beta=0.0)).prepare([group], Models())
    mask = Grpo(GrpoConfig(beta=0.0, truncated="mask")).prepare([group], Models())
    assert len(keep.samples) == 3
    backend = Grpo(GrpoConfig(beta=0.0, truncated="mask"))
    assert backend.weights(mask.samples) == {"sequences": 2.0, "tokens": 4.0}
    # Its reward still shaped the mean of the others.
    assert torch.equal(mask.samples[0].advantages, keep.samples[0].advantages)


def test_flat_groups_are_counted() -> None:
    groups = [(marked(1.0), marked(1.0)), (marked(1.0), marked(0.0)), (marked(None), marked(0.0))]
    prepared = Grpo(GrpoConfig(beta=0.0)).prepare(groups, Models())
    assert prepared.metrics["frac_reward_zero_std"] == pytest.approx(2 / 3)


def test_constant_aggregation_needs_its_length() -> None:
    with pytest.raises(ValueError, match="constant_length"):
        GrpoConfig(aggregation="constant")
    from stepmark.rl_backends.aggregation import token_weights

    with pytest.raises(ConfigError, match="constant_length"):
        token_weights([1], {"sequences": 1.0, "tokens": 1.0}, "constant")
