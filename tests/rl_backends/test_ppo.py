"""PPO without a model: rewards, advantages, returns and losses on given log-probs and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stepmark.rl_backends import Models, Ppo, PpoConfig, backends
from stepmark.rl_backends.gae import value_loss
from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Problem, Prompt, Rollout

PROMPT = Prompt(Problem("p/1", "What?", "1"), (1, 2), "What?")


def marked(
    reward: float | None,
    length: int = 3,
    *,
    steps: dict[int, float | None] | None = None,
    finish: str = "stop",
    logp: float = -1.0,
) -> Marked:
    """A completion; ``steps`` maps the last token of each step to its score."""
    rollout = Rollout(
        PROMPT,
        0,
        tuple(range(3, 3 + length)),
        (logp,) * length,
        finish,  # type: ignore[arg-type]
        "text",
        0,
        step_ends=None if steps is None else tuple(steps),
    )
    return Marked(rollout, {}, reward, None if steps is None else tuple(steps.values()))


def models(value: float = 0.0, reference: float | None = None, **given: Any) -> Models:
    """A critic that always says ``value`` + the token's place / 10, and a constant reference."""

    def values(samples):
        return [value + torch.arange(len(sample.ids)) / 10 for sample in samples]

    def logps(samples):
        return [torch.full((len(sample.ids),), reference) for sample in samples]

    return Models(None if reference is None else logps, values, **given)


def ppo(**given: Any) -> Ppo:
    return Ppo(PpoConfig(**{"beta": 0.0, "whiten": False, "steps": 100, **given}))


def prepared(backend: Ppo, rows: list[Marked], given: Models) -> list[TrainingSample]:
    return backend.prepare([tuple(rows)], given).samples


def numbers(tensor: torch.Tensor | None) -> Any:
    assert tensor is not None
    return pytest.approx(tensor.tolist(), abs=1e-6)


def test_the_outcome_is_on_the_last_sampled_token_and_returns_are_what_follows() -> None:
    [sample] = prepared(ppo(), [marked(1.0)], models(value=0.5))
    assert numbers(sample.returns) == [1.0, 1.0, 1.0]
    assert numbers(sample.advantages) == [0.5, 0.4, 0.3]
    assert numbers(sample.values) == [0.5, 0.6, 0.7]
    [sample] = prepared(ppo(gae_lambda=0.0), [marked(1.0)], models(value=0.5))
    assert numbers(sample.advantages) == [0.1, 0.1, 0.3]
    [sample] = prepared(ppo(gamma=0.5), [marked(1.0)], models(value=0.0))
    assert numbers(sample.returns) == [0.25, 0.5, 1.0]


def test_divergence_costs_reward_at_every_token_and_is_told() -> None:
    done = ppo(beta=0.5).prepare([(marked(1.0),)], models(reference=-1.5))
    assert numbers(done.samples[0].returns) == [0.25, 0.5, 0.75]
    assert done.metrics["kl"] == pytest.approx(0.5)
    assert done.metrics["objective/kl"] == pytest.approx(1.5)
    assert done.metrics["objective/non_score_reward"] == pytest.approx(-0.75)
    assert done.metrics["objective/rlhf_reward"] == pytest.approx(0.25)


def test_needs_a_critic_always_and_a_reference_only_where_it_costs() -> None:
    assert ppo().needs == {"critic"}
    assert ppo(beta=0.1).needs == {"critic", "reference"}
    with pytest.raises(ValueError, match="needs a critic"):
        prepared(ppo(), [marked(1.0)], Models())


def test_steps_are_rewarded_on_their_last_tokens_by_the_weights() -> None:
    row = marked(1.0, 4, steps={0: 0.5, 2: 0.75, 3: 0.25})
    given = models(outcome=2.0, process=10.0)
    [sample] = prepared(ppo(), [row], given)
    assert numbers(sample.returns) == [4.5, -0.5, -0.5, -3.0]  # rewards 5, 0, 2.5, 2 - 5
    [sample] = prepared(ppo(step_reward="raw"), [row], given)
    assert numbers(sample.returns) == [17.0, 12.0, 12.0, 4.5]
    [sample] = prepared(ppo(), [row], models())
    assert numbers(sample.returns) == [1.0, 1.0, 1.0, 1.0]  # recorded, not rewarded


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=6), place=st.integers(0, 5))
def test_repeating_a_step_does_not_raise_the_return_but_raw_rewards_do(scores, place) -> None:
    place = min(place, len(scores) - 1)
    longer = [*scores[: place + 1], scores[place], *scores[place + 1 :]]
    returns = {}
    for kind in ("difference", "raw"):
        for name, row in (("once", scores), ("twice", longer)):
            one = marked(1.0, len(row), steps=dict(enumerate(row)))
            [sample] = prepared(ppo(step_reward=kind), [one], models(process=1.0))
            assert sample.returns is not None
            returns[kind, name] = float(sample.returns[0])
    assert returns["difference", "twice"] == pytest.approx(returns["difference", "once"], abs=1e-5)
    assert returns["difference", "once"] == pytest.approx(1.0 + scores[-1], abs=1e-5)
    assert returns["raw", "twice"] == pytest.approx(
        returns["raw", "once"] + scores[place], abs=1e-5
    )


def test_a_completion_without_a_needed_reward_is_left_out_of_losses_and_denominators() -> None:
    backend = ppo()
    rows = [marked(1.0), marked(None, 5), marked(float("nan"), 5), marked(0.0, 2)]
    samples = prepared(backend, rows, models())
    assert [len(sample.ids) for sample in samples] == [3, 2]
    assert backend.weights(samples) == {"sequences": 2.0, "tokens": 5.0}
    both = models(process=1.0)
    assert not prepared(backend, [marked(1.0), marked(1.0, steps={2: None})], both)
    assert len(prepared(backend, [marked(1.0, steps={0: None, 2: 0.5})], both)) == 1
    steps_alone = models(process=1.0, outcome=0.0)
    [sample] = prepared(backend, [marked(None, steps={2: 0.5})], steps_alone)
    assert numbers(sample.returns) == [0.5, 0.5, 0.5]


def test_a_step_in_which_nothing_was_marked_teaches_nothing() -> None:
    done = ppo(beta=0.1).prepare([(marked(None),), ()], models(reference=-1.0))
    assert done.samples == []
    assert done.trains_policy


def test_cut_completions_end_there_are_masked_or_go_on_with_the_critics_value() -> None:
    rows = [marked(1.0), marked(0.25, finish="length")]
    kept = prepared(ppo(), rows, models())
    assert numbers(kept[1].returns) == [0.25, 0.25, 0.25]
    assert len(prepared(ppo(truncated="mask"), rows, models())) == 1
    goes_on = prepared(ppo(truncated="bootstrap"), rows, models(value=0.5))
    assert numbers(goes_on[0].returns) == [1.0, 1.0, 1.0]
    assert numbers(goes_on[1].returns) == [0.8, 0.8, 0.8]  # the value behind, not the outcome
    assert numbers(goes_on[1].values) == [0.5, 0.6, 0.7]
    assert goes_on[1].ids == rows[1].rollout.ids


def test_advantages_are_whitened_over_the_tokens_of_the_step_and_returns_are_not() -> None:
    rows = [marked(1.0), marked(0.0, 5), marked(0.5, 1)]
    plain = prepared(ppo(), rows, models(value=0.2))
    white = prepared(ppo(whiten=True), rows, models(value=0.2))
    flat = torch.cat([sample.advantages for sample in white])  # type: ignore[misc]
    assert float(flat.mean()) == pytest.approx(0, abs=1e-6)
    assert float(flat.std()) == pytest.approx(1, abs=1e-5)
    for one, two in zip(plain, white, strict=True):
        assert numbers(one.returns) == two.returns.tolist()  # type: ignore[union-attr]


def test_while_the_critic_warms_up_advantages_are_zero_and_the_policy_stays() -> None:
    backend = ppo(critic_warmup_steps=2, whiten=True)
    for step, is_warm in ((1, False), (2, False), (3, True)):
        done = backend.prepare([(marked(1.0), marked(0.0))], models(step=step))
        assert done.trains_policy is is_warm
        assert bool(done.samples[0].advantages.any()) is is_warm  # type: ignore[union-attr]
        assert numbers(done.samples[0].returns) == [1.0, 1.0, 1.0]


def test_explained_variance_says_how_much_the_critic_foresaw() -> None:
    def foresees(samples):
        return [torch.full((len(s.ids),), 1.0 if len(s.ids) == 3 else 0.0) for s in samples]

    rows = [(marked(1.0), marked(0.0, 2))]
    knows = ppo().prepare(rows, Models(None, foresees)).metrics
    assert knows["critic/explained_variance"] == pytest.approx(1.0)
    guesses = ppo().prepare(rows, Models(None, lambda s: [r * 0 for r in foresees(s)])).metrics
    assert guesses["critic/explained_variance"] == pytest.approx(0.0)


SAMPLES = [
    TrainingSample(
        (1,),
        tuple(range(length)),
        number,
        old_logps=torch.linspace(-2, -0.5, length),
        advantages=torch.linspace(-1, 1, length) * (number + 1),
        values=torch.linspace(0, 1, length),
        returns=torch.linspace(1, 0.2, length),
    )
    for number, length in enumerate((4, 2, 5))
]


def outs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and values away from the old ones, float64, with gradient."""
    generator = torch.Generator().manual_seed(seed)
    old = torch.cat([sample.old_logps for sample in SAMPLES]).double()  # type: ignore[misc]
    values = torch.cat([sample.values for sample in SAMPLES]).double()  # type: ignore[misc]
    moved = old + 0.3 * torch.randn(old.shape, generator=generator, dtype=torch.float64)
    other = values + 0.3 * torch.randn(old.shape, generator=generator, dtype=torch.float64)
    return moved.requires_grad_(), other.requires_grad_()


def losses(backend: Ppo, logps_N, values_N, parts=((0, 1, 2),), entropies_N=None):
    weights = backend.weights(SAMPLES)
    bounds = np.cumsum([0, *(len(sample.ids) for sample in SAMPLES)])
    found = []
    for part in parts:
        places = [place for n in part for place in range(bounds[n], bounds[n + 1])]
        micro = [SAMPLES[n] for n in part]
        out = TokenOut(
            logps_N[places],
            None if entropies_N is None else entropies_N[places],
            tuple(len(sample.ids) for sample in micro),
            values_N[places],
        )
        found.append(backend.losses(out, micro, weights))
    return found


def total(found, name: str | None = None):
    terms = [term for one in found for key, term in one.terms.items() if name in (None, key)]
    return torch.stack(terms).sum()


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_losses_are_those_of_a_plain_loop_over_tokens(clip) -> None:
    logps_N, values_N = (tensor.detach() for tensor in outs())
    found = losses(ppo(value_clip=clip), logps_N, values_N)
    policy = value = 0.0
    place = 0
    for sample in SAMPLES:
        for old, a, v_old, r in zip(
            sample.old_logps, sample.advantages, sample.values, sample.returns, strict=True
        ):
            ratio = np.exp(float(logps_N[place]) - float(old))
            policy -= min(ratio * float(a), np.clip(ratio, 0.8, 1.2) * float(a)) / 11
            v = float(values_N[place])
            near = v if clip is None else float(v_old) + np.clip(v - float(v_old), -clip, clip)
            value += max((v - float(r)) ** 2, (near - float(r)) ** 2) / 2 / 11
            place += 1
    assert float(total(found, "policy")) == pytest.approx(policy, rel=1e-5)
    assert float(total(found, "value")) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
@pytest.mark.parametrize("parts", [((0,), (1,), (2,)), ((2, 0), (1,)), ((1,), (0, 2))])
def test_losses_gradients_and_metrics_do_not_depend_on_micro_batches(aggregation, parts) -> None:
    backend = ppo(aggregation=aggregation)
    whole, split = outs(), outs()
    one, many = losses(backend, *whole), losses(backend, *split, parts=parts)
    total(one).backward()
    total(many).backward()
    for a, b in zip(whole, split, strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-6, atol=1e-12)  # type: ignore[arg-type]
    for name, value in one[0].metrics.items():
        assert sum(part.metrics[name] for part in many) == pytest.approx(value)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    backend, inputs = ppo(), outs(seed)
    total(losses(backend, *inputs)).backward()
    for which, place in ((0, 0), (0, 5), (0, 10), (1, 1), (1, 7)):
        at = []
        for step in (1e-6, -1e-6):
            moved = [tensor.detach().clone() for tensor in inputs]
            moved[which][place] += step
            at.append(float(total(losses(backend, *moved))))
        slope = (at[0] - at[1]) / 2e-6
        assert float(inputs[which].grad[place]) == pytest.approx(slope, abs=1e-6)  # type: ignore[index]


@given(st.floats(-1, 1), st.floats(-0.19, 0.19), st.floats(-2, 2))
def test_a_value_within_the_clip_always_has_its_gradient(old, moved, later) -> None:
    values_N = (torch.tensor([old]) + moved).requires_grad_()
    returns_N = torch.tensor([later])
    fit = value_loss(values_N, torch.tensor([old]), returns_N, clip=0.2)
    fit.losses_N.sum().backward()
    assert not fit.clipped_N.any()
    assert torch.equal(values_N.grad, values_N.detach() - returns_N)  # type: ignore[arg-type]


def test_zero_advantages_give_the_policy_a_gradient_of_exactly_zero(monkeypatch) -> None:
    zeros = [replace(s, advantages=torch.zeros(len(s.ids))) for s in SAMPLES]
    monkeypatch.setitem(globals(), "SAMPLES", zeros)
    logps_N, values_N = outs()
    total(losses(ppo(), logps_N, values_N)).backward()
    assert not logps_N.grad.any()  # type: ignore[union-attr]
    assert values_N.grad.any()  # type: ignore[union-attr]


def test_a_shared_critic_weighs_its_loss_and_one_of_its_own_does_not() -> None:
    logps_N, values_N = outs()
    own = float(total(losses(ppo(), logps_N, values_N), "value").detach())
    for settings, factor in (({}, 0.1), ({"value_weight": 0.5}, 0.5)):
        shared = losses(ppo(critic="shared", **settings), logps_N, values_N)
        assert float(total(shared, "value").detach()) == pytest.approx(factor * own)


def test_the_entropy_bonus_is_the_mean_entropy_by_its_weight() -> None:
    logps_N, values_N = outs()
    entropies_N = torch.linspace(0.1, 1.1, 11, dtype=torch.float64)
    found = losses(ppo(entropy_weight=0.5), logps_N, values_N, entropies_N=entropies_N)
    assert float(total(found, "entropy").detach()) == pytest.approx(-0.5 * 0.6)
    assert "entropy" not in losses(ppo(), logps_N, values_N)[0].terms


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"value_weight": 0.5}, ("value_weight is 0.5", 'critic is "own"')),
        ({"critic_warmup_steps": 9, "steps": 9}, ("critic_warmup_steps is 9", "steps is 9")),
        ({"entropy_weight": 0.1, "log_entropy": False}, ("entropy_weight is 0.1", "log_entropy")),
    ],
)
def test_settings_that_cannot_work_together_are_refused_with_both_names(given, words) -> None:
    with pytest.raises(ValidationError) as refused:
        PpoConfig(**given)
    assert all(word in str(refused.value) for word in words)


def test_every_setting_is_documented_and_the_backend_is_found_by_name() -> None:
    assert all(field.description for field in PpoConfig.model_fields.values())
    assert backends.load("ppo") is Ppo
    assert Ppo.min_group_size == 1
    with pytest.raises(ValidationError, match="Extra inputs"):
        PpoConfig(lam=0.95)  # type: ignore[call-arg]


def test_defaults_are_those_for_a_reward_at_the_end() -> None:
    config = PpoConfig()
    assert (config.gamma, config.gae_lambda, config.value_clip) == (1.0, 1.0, 0.2)
    assert (config.clip_low, config.clip_high, config.whiten) == (0.2, 0.2, True)
    assert (config.critic, config.truncated, config.step_reward) == ("own", "keep", "difference")
