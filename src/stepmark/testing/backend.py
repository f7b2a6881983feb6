"""The contract of backends, as a test that anybody can run on theirs."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from stepmark.rl_backends import AlgorithmConfig, Backend, Models, Policy, Prepared, backends
from stepmark.rl_backends.backend import Need, Source
from stepmark.training.critic import Critic, make_critic, token_values
from stepmark.training.forward import token_logps
from stepmark.training.packing import pack
from stepmark.training.sample import TrainingSample
from stepmark.training.tolerances import GRADIENTS_FLOAT32

from .bandit import BeginsWithGold, chance_of_gold, marked_groups, tiny_policy, train_on_bandit
from .verifier import Check, Report

__all__ = ["check_backend"]

LEARNT = 0.6
"""Chance of the right arm that a backend must reach; a policy that learnt nothing has 0.2, and the
backends that ship reach 0.73 to 1.00."""
SHORT_RUN = {"steps": 60, "learning_rate": 2e-2, "save_every": None}
"""Settings of the run on the bandit, where a backend has them."""


def check_backend(
    backend: str | type[Backend],
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
) -> Report:
    """The report on a backend's contract, in seconds, on a model of a few thousand weights.

    Settings are frozen and documented; preparing twice gives the same; losses, gradients and
    metrics do not depend on micro-batches; a minibatch twice over has the gradient of one; no
    gradient reaches the reference or the critic of the step before; zero advantages, and a step
    from which the verifier abstained, give no policy gradient; a small step against the gradient
    makes what is better likelier; and it learns a bandit of three arms on the real loop.

    Args:
        backend: registered name, or the class.
        settings: of the backend, where the defaults are not to be tested.
        strict: raise when a promise is broken; else only report.

    Raises:
        CheckFailed: a promise is broken and ``strict`` is set.

    >>> check_backend("sft").passed
    True
    """
    kind: Any = backends.load(backend) if isinstance(backend, str) else backend
    name = str(backend if isinstance(backend, str) else kind.__name__)
    words = _attempt("settings and class attributes are those of a backend", lambda: _words(kind))
    checks = [words]
    if words.passed:
        subject = Subject.make(kind(kind.Config(**(settings or {}))))
        checks += [_attempt(claim, lambda law=law: law(subject)) for claim, law in LAWS.items()]
        checks.append(
            _attempt("it learns a bandit of three arms", lambda: _learns(kind, settings or {}))
        )
    report = Report(name, tuple(checks))
    if strict:
        report.raise_if_failed()
    return report


def _attempt(name: str, claim: Callable[[], str | None]) -> Check:
    try:
        with torch.random.fork_rng(devices=[]):
            seen = claim()
    except Exception as error:
        seen = f"raised {type(error).__name__}: {str(error)[:300]}"
    return Check(name, seen is None, seen or "")


@dataclass(frozen=True, slots=True)
class Gradient:
    """What the losses of a minibatch give: gradients by model, the loss, the metrics."""

    policy: list[Tensor]
    critic: list[Tensor]
    loss: float
    metrics: Mapping[str, float]

    @property
    def norm(self) -> float:
        """Of the policy's gradient."""
        return math.sqrt(sum(float(row.double().square().sum()) for row in self.policy))


@dataclass(frozen=True, slots=True)
class Subject:
    """A backend with the models that it is tried on."""

    backend: Backend
    policy: Policy
    reference: nn.Module
    critic: Critic | None
    earlier: Critic | None
    """The critic as it is while a step is prepared."""

    @classmethod
    def make(cls, backend: Backend) -> Subject:
        """Fresh models from one seed; the reference is the policy."""
        policy = tiny_policy()
        shared = getattr(backend.config, "critic", "own") == "shared"
        has_critic = "critic" in backend.needs
        critic = make_critic(policy.model, shared=shared) if has_critic else None
        earlier = make_critic(policy.model) if has_critic else None
        return cls(backend, policy, copy.deepcopy(policy.model), critic, earlier)

    def prepare(self, *, is_scored: bool = True) -> Prepared:
        """What the backend makes of groups by hand, at the last step of a run.

        Log-probs and values carry gradient here, which the loop's do not: a backend must not use
        it either way.
        """
        groups = marked_groups(self.policy, self.backend.source, is_scored=is_scored)

        def reference_logps(samples: Sequence[TrainingSample]) -> list[Tensor]:
            return list(token_logps(self.reference, samples).split())

        def values(samples: Sequence[TrainingSample]) -> list[Tensor]:
            assert self.earlier is not None
            lengths = [len(sample.ids) for sample in samples]
            return list(token_values(self.earlier, samples).split(lengths))

        models = Models(
            reference_logps if "reference" in self.backend.needs else None,
            values if self.earlier is not None else None,
            step=max(self.backend.config.steps, 1),
            verifiers={BeginsWithGold.key: 1.0},
        )
        return self.backend.prepare(groups, models)

    def gradient(self, samples: Sequence[TrainingSample], token_budget: int = 1 << 20) -> Gradient:
        """Of all losses over a minibatch, in micro-batches of so many tokens."""
        for model in (self.policy.model, self.critic, self.earlier, self.reference):
            if model is not None:
                model.zero_grad(set_to_none=True)
        weights = self.backend.weights(samples)
        loss, metrics = 0.0, dict[str, float]()
        for micro in pack(samples, token_budget):
            out = token_logps(self.policy.model, micro, with_entropy=True)
            if self.critic is not None:
                out = replace(out, values_N=token_values(self.critic, micro))
            losses = self.backend.losses(out, micro, weights)
            total = torch.stack(list(losses.terms.values())).sum()
            if total.requires_grad:
                total.backward(retain_graph=True)
            loss += float(total.detach())
            for name, value in losses.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value
        critic = [] if self.critic is None else _grads(self.critic)
        return Gradient(_grads(self.policy.model), critic, loss, metrics)


def _grads(model: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(w) if w.grad is None else w.grad.clone() for w in model.parameters()]


def _words(kind: Any) -> str | None:
    config = kind.Config
    if not (isinstance(config, type) and issubclass(config, AlgorithmConfig)):
        return f"Config is {config!r}; it must extend stepmark.rl_backends.AlgorithmConfig"
    if not config.model_config.get("frozen") or config.model_config.get("extra") != "forbid":
        return "Config is not frozen, or takes unknown keys"
    if bare := [name for name, field in config.model_fields.items() if not field.description]:
        return f"settings without a docstring: {', '.join(bare)}"
    if kind.source not in get_args(Source):
        return f"source is {kind.source!r}; it must be one of {', '.join(get_args(Source))}"
    if not (isinstance(kind.min_group_size, int) and kind.min_group_size >= 1):
        return f"min_group_size is {kind.min_group_size!r}; it must be 1 or more"
    unknown = kind(config()).needs - set(get_args(Need))
    return f"needs names {sorted(unknown)}; known: {', '.join(get_args(Need))}" if unknown else None


def _gives_samples(subject: Subject) -> str | None:
    samples = subject.prepare().samples
    if not samples:
        return "no samples from groups with right and wrong completions"
    groups = {sample.group for sample in samples}
    return None if groups <= {0, 1, 2} else f"groups {sorted(groups)} of the 3 that there were"


def _prepares_again(subject: Subject) -> str | None:
    one, two = subject.prepare().samples, subject.prepare().samples
    same = len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    return None if same else "other samples the second time: a resumed run could not be exact"


def _same(one: TrainingSample, two: TrainingSample) -> bool:
    for name in (field.name for field in fields(TrainingSample)):
        a, b = getattr(one, name), getattr(two, name)
        if not (torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b):
            return False
    return True


def _micro_batches(subject: Subject) -> str | None:
    samples = subject.prepare().samples
    one, many = subject.gradient(samples), subject.gradient(samples, token_budget=1)
    if seen := _differs(one, many):
        return seen
    for name, value in one.metrics.items():
        if not math.isclose(many.metrics.get(name, math.nan), value, rel_tol=1e-4, abs_tol=1e-5):
            return f"the metric {name} is {value:g} in one micro-batch, {many.metrics.get(name)}"
    return None


def _twice_over(subject: Subject) -> str | None:
    samples = subject.prepare().samples
    weights = subject.backend.weights(samples)
    if bad := {name: v for name, v in weights.items() if not (math.isfinite(v) and v > 0)}:
        return f"weights {bad}; each must be a number above 0"
    copies = [
        replace(s, group=s.group + 100, pair=None if s.pair is None else s.pair + 100)
        for s in samples
    ]
    return _differs(subject.gradient(samples), subject.gradient([*samples, *copies]))


def _differs(one: Gradient, two: Gradient) -> str | None:
    if not math.isclose(one.loss, two.loss, rel_tol=1e-4, abs_tol=1e-5):
        return f"the loss is {one.loss:g} and {two.loss:g}"
    largest = max(float(row.abs().max()) for row in (*one.policy, *one.critic))
    pairs = zip((*one.policy, *one.critic), (*two.policy, *two.critic), strict=True)
    gap = max(float((a - b).abs().max()) for a, b in pairs)
    if gap <= GRADIENTS_FLOAT32 * max(largest, 1e-3):
        return None
    return f"gradients differ by {gap:.2g}, the largest is {largest:.2g}"


def _frozen(subject: Subject) -> str | None:
    subject.gradient(subject.prepare().samples)
    for name, model in (("reference", subject.reference), ("earlier critic", subject.earlier)):
        if model is not None and any(bool(row.any()) for row in _grads(model)):
            return f"the {name} got a gradient: detach what prepare() was given"
    return None


def _zero_advantages(subject: Subject) -> str | None:
    samples = subject.prepare().samples
    if any(sample.advantages is None for sample in samples):
        return None
    zeros = [replace(s, advantages=torch.zeros(len(s.ids))) for s in samples]
    value_only = getattr(subject.backend.config, "critic", "own") == "shared"
    norm = subject.gradient(zeros).norm
    return None if value_only or norm < 1e-6 else f"a policy gradient of norm {norm:.2g}"


def _abstained(subject: Subject) -> str | None:
    if subject.backend.source != "rollouts":
        return None
    samples = subject.prepare(is_scored=False).samples
    if not samples:
        return None
    found = subject.gradient(samples)
    is_fine = math.isfinite(found.loss) and found.norm < 1e-6
    return None if is_fine else f"a loss of {found.loss:g} and a gradient of norm {found.norm:.2g}"


def _better_is_likelier(subject: Subject) -> str | None:
    """By finite differences, because a sign can be wrong twice where a derivative is trusted."""
    gradient = subject.gradient(subject.prepare().samples)
    if gradient.norm == 0:
        return "the policy gets no gradient from right and wrong completions"
    step = 1e-2 / gradient.norm
    gaps = [_gap(subject, gradient.policy, scale) for scale in (-step, step)]
    slope = (gaps[0] - gaps[1]) / 2e-2
    return None if slope > 0 else f"right over wrong moves by {slope:.2g} per unit; it must rise"


@torch.no_grad()
def _gap(subject: Subject, direction: Sequence[Tensor], scale: float) -> float:
    """Log-prob of right completions less that of wrong ones, along a direction of the weights."""
    model = copy.deepcopy(subject.policy.model)
    for weight, row in zip(model.parameters(), direction, strict=True):
        weight.add_(row, alpha=scale)
    rows = [row for group in marked_groups(subject.policy, subject.backend.source) for row in group]
    samples = [TrainingSample(row.rollout.prompt.ids, row.rollout.ids) for row in rows]
    logps = token_logps(model, samples).split()
    signs = [1 if row.reward else -1 for row in rows]
    return sum(sign * float(row.sum()) for sign, row in zip(signs, logps, strict=True))


def _learns(kind: Any, settings: Mapping[str, Any]) -> str | None:
    short = {name: value for name, value in SHORT_RUN.items() if name in kind.Config.model_fields}
    policy = tiny_policy()
    before = chance_of_gold(policy)
    with tempfile.TemporaryDirectory() as folder:
        train_on_bandit(kind(kind.Config(**{**short, **settings})), policy, Path(folder) / "run")
    after = chance_of_gold(policy)
    return None if after >= LEARNT else f"the right arm went from {before:.2f} to {after:.2f}"


LAWS: Mapping[str, Callable[[Subject], str | None]] = {
    "right and wrong completions give samples of their groups": _gives_samples,
    "preparing twice gives the same samples": _prepares_again,
    "losses, gradients and metrics do not depend on micro-batches": _micro_batches,
    "a minibatch twice over has the gradient of one": _twice_over,
    "no gradient reaches frozen models": _frozen,
    "zero advantages give no policy gradient": _zero_advantages,
    "a step without scores teaches nothing": _abstained,
    "a step against the gradient makes what is better likelier": _better_is_likelier,
}
"""What is asked of a backend on groups by hand."""
