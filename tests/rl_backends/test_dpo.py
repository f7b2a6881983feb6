"""DPO, online DPO and SPIN as pure modules: what they learn from, and with which gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from stepmark.errors import ConfigError
from stepmark.rl_backends import (
    Dpo,
    DpoConfig,
    Models,
    OnlineDpo,
    OnlineDpoConfig,
    Spin,
    SpinConfig,
    backends,
)
from stepmark.testing import check_backend
from stepmark.training.forward import TokenOut
from stepmark.training.packing import pack
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Problem, Prompt, Rollout, Verdict

PROMPT = Prompt(Problem("p", "which?", gold="b"), (1, 2, 3), "which?")


def row(index: int, ids: tuple[int, ...], score: float | None = None, reward: float | None = None):
    verdict = Verdict.abstained("declined") if score is None else Verdict.marked(score, "judged")
    rollout = Rollout(PROMPT, index, ids, (-1.0,) * len(ids), "stop", repr(ids), 0)
    return Marked(rollout, {"arm@1": verdict}, score if reward is None else reward)


def group(*scores: float | None) -> tuple[Marked, ...]:
    return tuple(row(place, (10 + place, 0), score) for place, score in enumerate(scores))


def references(samples):
    return [torch.linspace(-2, -1, len(sample.ids)) for sample in samples]


MODELS = Models(reference_logps=references)
PAIRS = [
    (row(0, (5, 6, 7, 0)), row(1, (8, 0))),
    (row(0, (5, 0)), row(1, (9, 9, 9, 9, 0))),
    (row(0, (7, 7, 0)), row(1, (6, 6, 0))),
]
LOSSES = [
    DpoConfig(),
    DpoConfig(beta=0.5, label_smoothing=0.2),
    DpoConfig(loss="ipo-sum"),
    DpoConfig(loss="ipo-mean", beta=0.3),
    DpoConfig(reference_free=True),
]


def logps_of(samples: list[TrainingSample], seed: int = 0) -> list[torch.Tensor]:
    """Log-probs of each sample's tokens, leaves of their own."""
    torch.manual_seed(seed)
    return [(-torch.rand(len(sample.ids))).requires_grad_() for sample in samples]


def loss_of(backend: Dpo, micro: list[TrainingSample], logps: list[torch.Tensor], weights):
    lengths = tuple(len(sample.ids) for sample in micro)
    return backend.losses(TokenOut(torch.cat(logps), None, lengths), micro, weights)


@pytest.mark.parametrize("config", LOSSES, ids=lambda config: f"{config.loss}-{config.beta}")
@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_any_split_into_whole_pairs_gives_the_same_loss_metrics_and_gradient(
    config: DpoConfig, budget: int
) -> None:
    backend = Dpo(config)
    samples = backend.prepare(PAIRS, MODELS).samples
    weights = backend.weights(samples)
    whole_logps = logps_of(samples)
    whole = loss_of(backend, samples, whole_logps, weights)
    whole.terms["preference"].backward()
    own = logps_of(samples)
    place = {id(sample): number for number, sample in enumerate(samples)}
    total, metrics = 0.0, dict.fromkeys(whole.metrics, 0.0)
    for micro in pack(samples, budget):
        part = loss_of(backend, micro, [own[place[id(sample)]] for sample in micro], weights)
        part.terms["preference"].backward()
        total += part.terms["preference"].item()
        metrics = {name: metrics[name] + value for name, value in part.metrics.items()}
    assert total == pytest.approx(whole.terms["preference"].item(), rel=1e-6)
    assert metrics == pytest.approx(whole.metrics, rel=1e-5)
    for mine, theirs in zip(own, whole_logps, strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "config", [config for config in LOSSES if not config.reference_free], ids=lambda c: c.loss
)
def test_the_first_loss_is_the_one_that_the_backend_says(config: DpoConfig) -> None:
    backend = Dpo(config)
    samples = backend.prepare(PAIRS, MODELS).samples
    logps = [sample.ref_logps for sample in samples]
    found = loss_of(backend, samples, logps, backend.weights(samples))
    assert found.terms["preference"].item() == pytest.approx(backend.first_loss, abs=1e-6)
    if config.loss == "sigmoid":
        assert backend.first_loss == math.log(2)
    assert found.metrics["rewards/margins"] == 0
    assert Dpo(DpoConfig(reference_free=True)).first_loss is None


def test_metrics_have_trls_names() -> None:
    samples = Dpo().prepare(PAIRS, MODELS).samples
    found = loss_of(Dpo(), samples, logps_of(samples), Dpo().weights(samples)).metrics
    assert set(found) == {
        *(f"rewards/{name}" for name in ("chosen", "rejected", "accuracies", "margins")),
        *(f"logps/{name}" for name in ("chosen", "rejected")),
    }


def test_the_gradient_raises_chosen_tokens_and_lowers_rejected_ones() -> None:
    samples = Dpo().prepare(PAIRS, MODELS).samples
    logps = logps_of(samples)
    loss_of(Dpo(), samples, logps, Dpo().weights(samples)).terms["preference"].backward()
    for sample, own in zip(samples, logps, strict=True):
        assert bool((own.grad < 0).all()) == sample.is_chosen
        assert bool((own.grad > 0).all()) != sample.is_chosen


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 2)])
def test_broken_pairs_are_refused(order: tuple[int, ...]) -> None:
    samples = Dpo().prepare(PAIRS, MODELS).samples
    micro = [samples[place] for place in order]
    with pytest.raises(ConfigError, match="whole pairs, each chosen one before its rejected one"):
        loss_of(Dpo(), micro, logps_of(micro), Dpo().weights(samples))


def test_a_pair_without_a_difference_is_left_out() -> None:
    same = (row(0, (5, 0)), row(1, (5, 0)))
    assert not Dpo().prepare([same], MODELS).samples
    assert Dpo().prepare([same, PAIRS[0]], MODELS).metrics["pairs"] == 1


def test_without_a_reference_none_is_asked() -> None:
    def refuse(samples):
        raise AssertionError("the reference was asked")

    backend = Dpo(DpoConfig(reference_free=True))
    assert not backend.needs
    samples = backend.prepare(PAIRS, Models(reference_logps=refuse)).samples
    assert all(sample.ref_logps is None for sample in samples)
    assert Dpo().needs == {"reference"}


def online(*groups: tuple[Marked, ...], **given) -> tuple[list[tuple[int, int, int]], dict]:
    """(group, chosen, rejected) of every pair, by the first id of each, and the metrics."""
    prepared = OnlineDpo(OnlineDpoConfig(**given)).prepare(groups, MODELS)
    rows = prepared.samples
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return [(a.group, a.ids[0] - 10, b.ids[0] - 10) for a, b in pairs], dict(prepared.metrics)


def test_right_completions_are_paired_over_wrong_ones_and_no_others() -> None:
    pairs, metrics = online(group(1, 0, 1), group(0, 1, 0), pairs_per_problem=None)
    assert pairs == [(0, 0, 1), (0, 2, 1), (1, 1, 0), (1, 1, 2)]
    assert metrics["pairs"] == 4
    assert metrics["frac_reward_zero_std"] == 0


def test_unanimous_groups_give_no_pair_and_are_counted() -> None:
    pairs, metrics = online(group(1, 1, 1), group(0, 0), group(0, 1))
    assert pairs == [(2, 1, 0)]
    assert metrics["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert metrics["pairs/group_share"] == pytest.approx(1 / 3)
    _, metrics = online(group(1, 1), group(0, 0))
    assert (metrics["pairs"], metrics["pairs/skipped_step"]) == (0, 1)


@pytest.mark.parametrize("pairing", ["right-over-wrong", "margin", "best-over-worst"])
def test_completions_whose_verifier_abstained_are_in_no_pair(pairing: str) -> None:
    pairs, _ = online(group(1, None, 0, None), pairing=pairing)
    assert pairs == [(0, 0, 2)]
    assert online(group(1, None, None), pairing=pairing)[0] == []


def test_a_problem_gives_at_most_the_cap() -> None:
    pairs, _ = online(group(1, 1, 1, 0, 0, 0), group(1, 0), pairs_per_problem=3)
    assert [pair[0] for pair in pairs] == [0, 0, 0, 1]
    assert {pair[1] for pair in pairs[:3]} == {0, 1, 2}


def test_margins_go_by_the_reward_and_right_over_wrong_by_the_first_verifier() -> None:
    rows = (row(0, (10, 0), 1.0, 0.4), row(1, (11, 0), 1.0, 1.0), row(2, (12, 0), 0.0, 0.5))
    assert online(rows)[0] == [(0, 0, 2), (0, 1, 2)]
    assert online(rows, pairing="margin", margin=0.5)[0] == [(0, 1, 0), (0, 1, 2)]


def test_self_play_prefers_the_demonstration_to_each_completion_that_differs() -> None:
    shown = row(3, (7, 7, 0))
    drawn = [row(0, (5, 0)), row(1, (7, 7, 0)), row(2, (6, 0))]
    samples = Spin().prepare([(*drawn, shown)], MODELS).samples
    assert [(s.ids, s.is_chosen) for s in samples] == [
        ((7, 7, 0), True),
        ((5, 0), False),
        ((7, 7, 0), True),
        ((6, 0), False),
    ]
    assert [sample.pair for sample in samples] == [0, 0, 1, 1]
    assert Spin().needs == {"reference", "first-policy"}
    assert Spin(SpinConfig(online=True)).needs == {"reference"}


def test_pairs_are_numbered_over_groups_so_that_none_are_mixed() -> None:
    samples = OnlineDpo().prepare([group(1, 0), group(1, 0)], MODELS).samples
    assert [sample.pair for sample in samples] == [0, 0, 1, 1]
    assert [sample.group for sample in samples] == [0, 0, 1, 1]


def test_settings_that_are_no_loss_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"label_smoothing is 0\.1 and loss"):
        DpoConfig(loss="ipo-sum", label_smoothing=0.1)
    with pytest.raises(ValidationError, match="greater than 0"):
        DpoConfig(beta=0)


@pytest.mark.parametrize("model", [DpoConfig, OnlineDpoConfig, SpinConfig])
def test_every_setting_is_documented(model) -> None:
    assert all(field.description for field in model.model_fields.values())


def test_the_backends_are_registered() -> None:
    assert [backends.load(name) for name in ("dpo", "online-dpo", "spin")] == [Dpo, OnlineDpo, Spin]


@pytest.mark.parametrize("config", LOSSES[1:], ids=lambda config: f"{config.loss}-{config.beta}")
def test_other_losses_keep_the_contract_of_backends(config: DpoConfig) -> None:
    """All but the bandit's: one step cannot teach it."""
    given = config.model_dump(exclude_defaults=True) | {"steps": 1}
    *laws, _ = check_backend("dpo", given, strict=False).checks
    assert not [(law.name, law.seen) for law in laws if not law.passed]


def test_nothing_trains_through_the_reference() -> None:
    samples = Dpo().prepare(PAIRS, MODELS).samples
    held = [sample.ref_logps.clone().requires_grad_() for sample in samples]
    given = [replace(s, ref_logps=ref) for s, ref in zip(samples, held, strict=True)]
    logps = logps_of(samples)
    loss_of(Dpo(), given, logps, Dpo().weights(given)).terms["preference"].backward()
    assert all(ref.grad is None for ref in held)
