"""Our values of the oracle's cases about whole completions: PPO's, DPO's, the forward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from stepmark.engines.decoding import Decoding, Row
from stepmark.rl_backends.gae import generalized_advantages, shaped_rewards, value_loss, whiten
from stepmark.rl_backends.preferences import (
    pair_logps,
    pairs_from_group,
    preference_losses,
    preference_metrics,
    reference_margins,
)
from stepmark.training.forward import lay_out
from stepmark.training.head import logps_of_logits
from stepmark.training.sample import TrainingSample
from stepmark.types import Problem, Prompt, Sampling

Case = Mapping[str, Any]


def log(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def masked(rows: list[list[float]], mask: list[list[float]]) -> list[list[float]]:
    return [[x for x, m in zip(*pair, strict=True) if m] for pair in zip(rows, mask, strict=True)]


def gae_rewards(case: Case, score: float) -> list[Tensor]:
    old, ref = log(case["pi_old"]), log(case["pi_ref"])
    return shaped_rewards([old], [ref], [score], beta=case["beta"])


def gae(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rewards, values = gae_rewards(case, case["score"]), doubles(case["values"])
    found = generalized_advantages(rewards, [values], gamma=case["gamma"], lam=case["lam"])
    # The second's 1e-8 is the least variance, which does not act here, and is not added.
    white = {
        scale: whiten(found.advantages, scale=scale, epsilon=epsilon)[0]
        for scale, epsilon in (("sample", 1e-8), ("population", 0.0))
    }
    return {
        "rewards": rewards[0].tolist(),
        "advantages": found.advantages[0].tolist(),
        "returns": found.returns[0].tolist(),
        "whitened_ddof0_eps1e-8 (OpenRLHF)": white["population"].tolist(),
        "whitened_ddof1_eps1e-8 (TRL 1.10, verl)": white["sample"].tolist(),
    }


def bootstrap(case: Case, cases: Mapping[str, Case]) -> dict[str, Any]:
    rewards = gae_rewards(cases["gae/gamma1.0_lam0.95"], 0.0)
    found: dict[str, Any] = {}
    for name, end in (("bootstrapped", case["bootstrap_value"]), ("as_terminal", None)):
        estimates = generalized_advantages(
            rewards,
            [doubles(case["values"])],
            gamma=case["gamma"],
            lam=case["lam"],
            next_values=[end],
        )
        found[name] = {key: rows[0].tolist() for key, rows in estimates._asdict().items()}
    return found


def hole(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    mask = torch.tensor(case["mask"]).bool()
    values = doubles(case["values"]).masked_fill(~mask, math.nan)
    found = generalized_advantages(
        [doubles(case["rewards"])], [values], gamma=case["gamma"], lam=case["lam"], masks=[mask]
    )
    return {"advantages_at_mask1": found.advantages[0][mask].tolist()}


def value(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    values = doubles(case["value"]).requires_grad_()
    old, returns, bound = doubles(case["old_value"]), doubles(case["returns"]), case["clip"]
    loss = value_loss(values, old, returns, bound).losses_N.mean()
    near = old + (values - old).clamp(-bound, bound)
    plain = value_loss(values, old, returns, None).losses_N
    return {
        "unclipped_sq": (2 * plain).tolist(),
        "clipped_sq": (2 * value_loss(near, old, returns, None).losses_N).tolist(),
        "loss": loss.item(),
        "loss_without_clip": plain.mean().item(),
        "grad_value": torch.autograd.grad(loss, values)[0].tolist(),
    }


def dpo(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    sides = ("chosen", "rejected")
    rows, refs = (
        [masked([case[side + end]], [case[f"{side}_mask"]])[0] for side in sides]
        for end in ("", "_ref")
    )
    logps = doubles([*chain(*rows)]).requires_grad_()
    lengths = [len(row) for row in rows]
    pairs = pair_logps(logps, doubles([*chain(*refs)]), lengths)
    beta, smooth = case["beta"], case["label_smoothing"]
    loss = preference_losses(pairs, beta=beta)
    metrics = preference_metrics(pairs, beta)
    names = ("chosen", "rejected", "ref_chosen", "ref_rejected")
    return {
        "logps": {name: sums.item() for name, sums in zip(names, pairs[:4], strict=True)},
        "h": reference_margins(pairs).item(),
        "dpo = -log sigmoid(beta h)": loss.item(),
        "cdpo = -(1-eps) logsig(beta h) - eps logsig(-beta h)": preference_losses(
            pairs, beta=beta, label_smoothing=smooth
        ).item(),
        "ipo paper = (h - 1/(2 tau))^2, summed logps (OpenRLHF)": preference_losses(
            pairs, loss="ipo-sum", beta=case["tau"]
        ).item(),
        "ipo length-normalised (TRL)": preference_losses(
            pairs, loss="ipo-mean", beta=case["tau"]
        ).item(),
        "reference_free = -logsig(beta (log pi(w) - log pi(l)))": preference_losses(
            pair_logps(logps, None, lengths), beta=beta
        ).item(),
        "implicit_rewards": [float(metrics[f"rewards/{side}"]) for side in sides],
        "accuracy": float(metrics["rewards/accuracies"]),
        "grad wrt chosen logp sum = -beta sigmoid(-beta h)": float(
            torch.autograd.grad(loss.sum(), logps)[0][0]
        ),
    }


def at_reference(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    logps = doubles([-1.0, -0.5 - case["h"], -2.0])
    pairs = pair_logps(logps, logps, [2, 1])
    losses = {"dpo": ("sigmoid", 0), "cdpo": ("sigmoid", 0.1), "ipo": ("ipo-sum", 0)}
    return {
        name: float(
            preference_losses(
                pairs,
                loss=loss,
                beta=case["tau" if name == "ipo" else "beta"],
                label_smoothing=smooth,
            )
        )
        for name, (loss, smooth) in losses.items()
    }


def pairs(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rewards = case["rewards"]
    return {
        "all_pairs": [pair[:2] for pair in pairs_from_group(rewards)],
        "best_vs_worst_first_index": [
            pair[:2] for pair in pairs_from_group(rewards, by="best-over-worst")
        ],
        "unanimous [1,1,1,1]": list(pairs_from_group([1, 1, 1, 1])),
    }


def tempered(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    size = len(case["logits"])
    out = logps_of_logits(
        torch.tensor([case["logits"]] * size), torch.arange(size), case["temperature"], True
    )
    assert out.entropies_N is not None
    return {"logprobs": out.logps_N.tolist(), "entropy": float(out.entropies_N[0])}


class Script(torch.nn.Module):
    """Says the given rows after a prompt of one token, whatever it is asked."""

    def __init__(self, rows: list[list[int]]) -> None:
        super().__init__()
        self.place = torch.nn.Parameter(torch.tensor(0.0))
        self.rows = torch.tensor(rows)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, use_cache: bool) -> Any:
        said = attention_mask.shape[1] - 1
        logits = 1e4 * torch.nn.functional.one_hot(self.rows[:, said], 16).float()
        return SimpleNamespace(logits=logits[:, None], past_key_values=None)


def mask_of_sampled(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    """What the engine hands over when a model says these ids, and what training makes of it."""
    rows = case["ids"]
    prompt = Prompt(Problem("p", "?", "1"), (1,), "?")
    asked = [Row(prompt, place, 0, 0) for place in range(len(rows))]
    decoding = Decoding(Script(rows), asked, Sampling(max_tokens=len(rows[0])), [case["eos"]])
    ended = {}
    while not decoding.done:
        ended.update({one.row.group: one for one in decoding.advance()})
    samples = [TrainingSample((1,), tuple(ended[place].ids)) for place in range(len(rows))]
    trained = lay_out(samples, torch.device("cpu")).rows_N.bincount(minlength=len(rows)).tolist()
    return {
        "mask": [[1] * n + [0] * (len(row) - n) for n, row in zip(trained, rows, strict=True)],
        "truncated": [ended[place].finish == "length" for place in range(len(rows))],
    }


CHECKS = {
    "gae/gamma1.0_lam0.95": gae,
    "gae/gamma1.0_lam1.0": gae,
    "gae/gamma0.99_lam0.9": gae,
    "gae/truncated_bootstrap": bootstrap,
    "gae/hole_in_mask": hole,
    "value_loss/clipped": value,
    "dpo/all": dpo,
    "dpo/at_reference": at_reference,
    "dpo/pairs_from_group": pairs,
    "logprob/temperature_1.0": tempered,
    "logprob/temperature_0.5": tempered,
    "mask/eos": mask_of_sampled,
    "mask/pad_equals_eos": mask_of_sampled,
}
