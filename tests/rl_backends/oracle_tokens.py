"""Our values of the oracle's cases about tokens: divergence, ratios, clipping, eq. (3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from stepmark.rl_backends.aggregation import denominators, token_weights
from stepmark.rl_backends.clipping import (
    clipped_objective,
    engine_weights,
    importance_ratio,
    sequence_ratio,
)
from stepmark.rl_backends.kl import kl_tokens
from stepmark.rl_backends.process import process_advantages

Case = Mapping[str, Any]


def log(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def masked(rows: list[list[float]], mask: list[list[float]]) -> list[list[float]]:
    return [[x for x, m in zip(*pair, strict=True) if m] for pair in zip(rows, mask, strict=True)]


def padded(rows: list[list[float]], mask: list[list[float]]) -> list[list[float]]:
    """Back into the oracle's rectangles, 0 where the mask is."""
    left = [iter(row) for row in rows]
    return [[next(it) if m else 0.0 for m in row] for it, row in zip(left, mask, strict=True)]


def kl_per_token(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    pi, ref = log(case["pi"]).requires_grad_(), log(case["pi_ref"])
    names = {
        "k1": "dk1_dlogpi",
        "k2": "dk2_dlogpi = log pi - log pi_ref",
        "k3": "dk3_dlogpi = 1 - pi_ref/pi",
    }
    values = {name: kl_tokens(pi, ref, name) for name in names}
    gradients = {
        names[name]: torch.autograd.grad(value.sum(), pi)[0].tolist()
        for name, value in values.items()
    }
    return {**{name: value.tolist() for name, value in values.items()}, **gradients}


def kl_expected(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    pi, ref = log(case["pi"]), log(case["pi_ref"])
    found = {
        f"E_{name}": float((pi.exp() * kl_tokens(pi, ref, name)).sum())
        for name in ("k1", "k2", "k3")
    }
    unbiased = float((pi.exp() * kl_tokens(pi, ref, "k3-unbiased")).sum())
    return {**found, "KL": unbiased, "E_ratio": float((pi.exp() * importance_ratio(ref, pi)).sum())}


def kl_gradients(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    ref = log(case["pi_ref"])
    names = {
        "k1": "k1_as_loss",
        "k2": "k2_as_loss",
        "k3": "k3_as_loss (DeepSeekMath)",
        "k3-unbiased": "ratio_x_k3_as_loss (d/dlp of sg-weighted: k3 + 1 - pi_ref/pi)",
    }

    def gradient(estimator: Any, *, through_pi: bool) -> list[float]:
        logits = log(case["pi"]).requires_grad_()
        logps = torch.log_softmax(logits, -1)
        chances = logps.exp() if through_pi else logps.exp().detach()
        (chances * kl_tokens(logps, ref, estimator)).sum().backward()
        return logits.grad.tolist()

    found = {names[name]: gradient(name, through_pi=False) for name in names}
    return {**found, "grad_true_KL": gradient("k1", through_pi=True)}


def kl_clamp(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    pi, ref = doubles([case["logp"]]), doubles([case["ref"]])
    return {
        "k3_unclamped": kl_tokens(pi, ref, limit=None).tolist(),
        "k1_in_reward": kl_tokens(pi, ref, "k1", limit=None).tolist(),
        "openrlhf_k1_clamped": kl_tokens(pi, ref, "k1", limit=10).tolist(),
    }


def clip(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    logps = log(case["ratio"]).requires_grad_()
    ratio = importance_ratio(logps, torch.zeros_like(logps))
    # exp(log x) is off by an ulp, and the case stands on the bounds themselves.
    ratio = ratio + (doubles(case["ratio"]) - ratio).detach()
    advantages = torch.full_like(ratio, case["advantage"])
    objective = clipped_objective(ratio, advantages, case["eps"], case["eps"]).objective_N
    higher = clipped_objective(ratio, advantages, case["eps"], 0.28).objective_N
    (gradient,) = torch.autograd.grad(objective.sum(), logps)
    return {
        "objective": objective.tolist(),
        "loss": (-objective).tolist(),
        "grad_objective_wrt_logp": gradient.tolist(),
        "clip_higher_0.28": higher.tolist(),
    }


def gspo(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rows = masked(case["logp"], case["mask"])
    lengths = [len(row) for row in rows]
    logps, old = doubles([*chain(*rows)]), doubles([*chain(*masked(case["old"], case["mask"]))])
    ratio = sequence_ratio(logps, old, lengths)
    advantages = doubles(case["adv"]).repeat_interleave(torch.tensor(lengths))
    clipped = clipped_objective(ratio, advantages, case["eps_low"], case["eps_high"]).objective_N
    weights = token_weights(lengths, denominators(lengths), "sequence-mean", like=logps)
    first = [sum(lengths[:place]) for place in range(len(lengths))]
    return {
        "s": ratio[first].tolist(),
        "objective": clipped[first].tolist(),
        "loss": float(-(weights * clipped).sum()),
    }


def importance(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    trainer, engine = doubles(case["trainer_old"]), doubles(case["engine"])

    def weights(level: Any, correction: Any = "truncate", **bounds: Any) -> list[float]:
        bounds = {"high": case["cap"], **bounds}
        return engine_weights(
            trainer, engine, [len(trainer)], level=level, correction=correction, **bounds
        ).tolist()

    return {
        "raw": weights("token", high=None),
        "token_truncate (TIS)": weights("token"),
        "token_mask (IcePop, [0.5, 3])": weights("token", "mask", low=case["low"]),
        "sequence_ratio": weights("sequence", high=None)[0],
        "sequence_truncate": weights("sequence")[-1],
        "sequence_mask (TRL default, cap 3)": weights("sequence", "mask")[0],
        "geometric_mean": weights("geometric", high=None)[-1],
    }


class Tokens:
    """Eq. (3) by its parts, for one case; the backend itself is held to them in test_grpo_loss."""

    def __init__(self, case: Case, cases: Mapping[str, Case]) -> None:
        base = case if "pi_old" in case or "pi" in case else cases["grpo_loss/two_outputs"]
        self.mask = case.get("mask", base["mask"])
        pi = base.get("pi", base.get("pi_old"))
        chances = (base.get(name, pi) for name in ("pi", "pi_old", "pi_ref"))
        self.rows, old, ref = (masked(rows, self.mask) for rows in chances)
        self.lengths = [len(row) for row in self.rows if row]
        each = base.get("advantage", [[1.0], [-1.0]])
        self.advantages = [a * len(row) for a, row in zip(each, self.rows, strict=True)]
        if "step_rewards" in case:
            steps = case["step_rewards"], case["step_end_token"], case["lengths"]
            self.advantages = process_advantages(*steps, scale="population", epsilon=0)
        self.logps = log([*chain(*self.rows)]).requires_grad_()
        self.ref, self.beta = log([*chain(*ref)]), base.get("beta", 0.0)
        self.ratio = importance_ratio(self.logps, log([*chain(*old)]))
        bound, advantages = base.get("eps", 0.2), doubles([*chain(*self.advantages)])
        self.policy = -clipped_objective(self.ratio, advantages, bound, bound).objective_N
        self.kl = kl_tokens(self.logps, self.ref)
        self.loss = self.policy + self.beta * self.kl

    def total(self, aggregation: Any, per_token: Tensor | None = None) -> Tensor:
        loss = self.loss if per_token is None else per_token
        whole = denominators(self.lengths)
        return (token_weights(self.lengths, whole, aggregation, 4, like=loss) * loss).sum()

    def gradient(self, aggregation: Any) -> list[list[float]]:
        total = self.total(aggregation)
        return self.rectangle(torch.autograd.grad(total, self.logps, retain_graph=True)[0])

    def parts(self) -> list[float]:
        """Each completion a micro-batch of its own."""
        whole, found = denominators(self.lengths), []
        for loss in torch.split(self.loss, self.lengths):
            weights = token_weights([len(loss)], whole, "token-mean", like=loss)
            found.append((weights * loss).sum().item())
        return found

    def rectangle(self, flat: Tensor) -> list[list[float]]:
        split = iter(torch.split(flat.detach(), self.lengths))
        return padded([next(split).tolist() if row else [] for row in self.rows], self.mask)


def grpo(case: Case, cases: Mapping[str, Case]) -> dict[str, Any]:
    tokens = Tokens(case, cases)
    sequence, token = tokens.total("sequence-mean").item(), tokens.total("token-mean").item()
    weighed = kl_tokens(tokens.logps, tokens.ref, "k3-unbiased", ratio_N=tokens.ratio)
    return {
        "ratio": [[ratio or 1.0 for ratio in row] for row in tokens.rectangle(tokens.ratio)],
        "k3": tokens.rectangle(tokens.kl),
        "kl": tokens.total("sequence-mean", tokens.kl).item(),
        "max_k3": tokens.kl.max().item(),
        "advantages": padded([list(row) for row in tokens.advantages], tokens.mask),
        "per_token_loss": tokens.rectangle(tokens.loss),
        "paper seq-mean-token-mean": sequence,
        "seq-mean-token-mean": sequence,
        "verl/OpenRLHF seq-mean-token-mean (empty row left out: divide by 1)": sequence,
        "token-mean": token,
        "token-mean (DAPO, TRL default 'dapo', verl default)": token,
        "seq-mean-token-sum": tokens.total("sequence-sum").item(),
        "constant L=4 (Dr.GRPO, TRL 'dr_grpo')": tokens.total("constant").item(),
        "rho*k3 instead of k3, seq-mean-token-mean (TRL 1.16 use_bias_correction_kl=True default, "
        "DeepSeek-V3.2)": tokens.total(
            "sequence-mean", tokens.policy + tokens.beta * weighed
        ).item(),
        "paper, beta=0": tokens.total("sequence-mean", tokens.policy).item(),
        "grad_logp seq-mean-token-mean": tokens.gradient("sequence-mean"),
        "grad_logp token-mean": tokens.gradient("token-mean"),
        "right": sum(tokens.parts()),
        "micro_contributions": tokens.parts(),
    }


CHECKS = {
    "kl/tokens": kl_per_token,
    "kl/expectation": kl_expected,
    "kl/gradient_in_loss": kl_gradients,
    "kl/clamp": kl_clamp,
    "clip/adv+1": clip,
    "clip/adv-1": clip,
    "clip/gspo": gspo,
    "importance/trainer_vs_engine": importance,
    "grpo_loss/two_outputs": grpo,
    "grpo_loss/on_policy_value": grpo,
    "grpo_loss/micro_batches": grpo,
    "grpo_loss/truncated_masked": grpo,
    "grpo_loss/reference_refresh": grpo,
    "grpo_loss/process_supervision": grpo,
}
