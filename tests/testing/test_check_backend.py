"""The contract test passes the backends that ship and names what a backend breaks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any, ClassVar

import pytest
import torch

from stepmark.rl_backends import AlgorithmConfig, Grpo, GrpoConfig, Ppo
from stepmark.testing import CheckFailed, check_backend

SHIPPED = ("sft", "rft", "dpo", "online-dpo", "spin", "grpo", "ppo")
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("rft", {"online": True}),
    ("grpo", {"aggregation": "token-mean", "kl": "k3-unbiased", "scale": "none"}),
    ("grpo", {"kl": "k1", "kl_in": "reward", "baseline": "leave-one-out"}),
    ("ppo", {"critic": "shared", "aggregation": "sequence-mean", "value_clip": None}),
    ("ppo", {"beta": 0.0, "whiten": False, "gae_lambda": 0.95, "truncated": "bootstrap"}),
]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_backends_keep_the_contract(name: str) -> None:
    assert check_backend(name).passed


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_other_settings_keep_all_but_what_one_step_cannot_teach(
    name: str, settings: dict[str, Any]
) -> None:
    report = check_backend(name, {"steps": 1, **settings}, strict=False)
    *laws, learns = report.checks
    assert not [(law.name, law.seen) for law in laws if not law.passed]
    assert learns.name == "it learns a bandit of three arms"


def test_every_shipped_name_is_checked() -> None:
    found = entry_points(group="stepmark.backends")
    assert {one.name for one in found if one.value.startswith("stepmark.")} == set(SHIPPED)


class WrongSign(Grpo):
    def losses(self, out, micro, weights):
        found = super().losses(out, micro, weights)
        return replace(found, terms={"policy": -found.terms["policy"]})


class MeanOfMeans(Grpo):
    def losses(self, out, micro, weights):
        return super().losses(out, micro, self.weights(micro))


class Sums(Grpo):
    def weights(self, minibatch):
        return {"sequences": 1.0, "tokens": 1.0}


class Attached(Ppo):
    def prepare(self, groups, models):
        done = super().prepare(groups, models)
        samples = [
            replace(sample, returns=value)
            for sample, value in zip(done.samples, models.values(done.samples), strict=True)  # type: ignore[misc]
        ]
        return replace(done, samples=samples)

    def losses(self, out, micro, weights):
        found = super().losses(out, micro, weights)
        extra = torch.cat([sample.returns for sample in micro]).sum()  # type: ignore[misc]
        return replace(found, terms={**found.terms, "extra": extra / weights["tokens"]})


class Restless(Grpo):
    calls = 0

    def prepare(self, groups, models):
        Restless.calls += 1
        done = super().prepare(groups, models)
        noise = Restless.calls * 0.01
        samples = [replace(s, advantages=s.advantages + noise) for s in done.samples]  # type: ignore[operator]
        return replace(done, samples=samples)


class Imitator(Grpo):
    def losses(self, out, micro, weights):
        found = super().losses(out, micro, weights)
        terms = {**found.terms, "nll": -out.logps_N.sum() / weights["tokens"]}
        return replace(found, terms=terms)


class Bare(GrpoConfig):
    strength: float = 1.0


class Undocumented(Grpo):
    Config: ClassVar[type[AlgorithmConfig]] = Bare


class Elsewhere(Grpo):
    source: ClassVar[Any] = "dreams"


@pytest.mark.parametrize(
    ("fake", "promise"),
    [
        (WrongSign, "a step against the gradient makes what is better likelier"),
        (MeanOfMeans, "losses, gradients and metrics do not depend on micro-batches"),
        (Sums, "a minibatch twice over has the gradient of one"),
        (Attached, "no gradient reaches frozen models"),
        (Restless, "preparing twice gives the same samples"),
        (Imitator, "zero advantages give no policy gradient"),
        (Imitator, "a step without scores teaches nothing"),
        (Undocumented, "settings and class attributes are those of a backend"),
        (Elsewhere, "settings and class attributes are those of a backend"),
    ],
)
def test_a_broken_promise_is_named(fake: Any, promise: str) -> None:
    report = check_backend(fake, {"steps": 1}, strict=False)
    assert promise in [check.name for check in report.checks if not check.passed]


def test_the_message_lists_every_broken_promise() -> None:
    with pytest.raises(CheckFailed, match=r"WrongSign(.|\n)*likelier(.|\n)*from 0.20 to"):
        check_backend(WrongSign, {"steps": 20})


def test_checking_verifiers_needs_no_torch() -> None:
    code = "import sys, stepmark.testing as t; t.check_verifier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
