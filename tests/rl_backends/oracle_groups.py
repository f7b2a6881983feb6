"""Our values of the oracle's cases about groups: advantages of outcomes and of steps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch

from stepmark.rl_backends.advantages import (
    batch_advantages,
    decoupled_advantages,
    group_advantages,
)
from stepmark.rl_backends.process import process_advantages

Case = Mapping[str, Any]


def outcome(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rewards = case["rewards"]
    return {
        "paper_ddof0_eps0": group_advantages(rewards, scale="population", epsilon=0),
        "paper_ddof1_eps0": group_advantages(rewards, epsilon=0),
        "trl_ddof1_eps1e-4": group_advantages(rewards, epsilon=1e-4),
        "verl_slime_ddof1_eps1e-6": group_advantages(rewards),
        "openrlhf_group_norm_ddof1_eps1e-9": group_advantages(rewards, epsilon=1e-9),
        "open_instruct_standard_ddof0_eps1e-8": group_advantages(
            rewards, scale="population", epsilon=1e-8
        ),
        "dr_grpo_no_std (prime-rl default, open-instruct 'centered')": group_advantages(
            rewards, scale="none"
        ),
        "rloo = r_i - mean of the others": group_advantages(
            rewards, scale="none", baseline="leave-one-out"
        ),
    }


def no_signal(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    found = group_advantages(case["rewards"], epsilon=1e-9)
    return {"advantages" if len(found) > 1 else "recommended": found}


def constant_float32(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rewards = torch.full((case["G"],), case["rewards_float32"]).tolist()
    return {"must_be": max(map(abs, group_advantages(rewards, epsilon=1e-9)))}


def unscorable(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    return {
        "ddof0_eps0": group_advantages(case["rewards"], scale="population", epsilon=0),
        "ddof1_eps1e-4": group_advantages(case["rewards"], epsilon=1e-4),
    }


def batch_std(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    return {"ddof1_eps1e-4": batch_advantages(case["groups"], epsilon=1e-4)}


def two_rewards(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rows, weights = case["rewards_per_func"], case["weights"]
    sums = [sum(w * r for w, r in zip(weights, row, strict=True)) for row in rows]
    return {
        "sum_then_normalize_ddof1_eps1e-4": group_advantages(sums, epsilon=1e-4),
        "normalize_then_sum_ddof1_eps1e-4 (one-group batch)": decoupled_advantages(
            [rows], weights, epsilon=1e-4
        )[0],
    }


def process(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    rewards, lengths = case["step_rewards"], case["lengths"]
    ends = next(value for name, value in case.items() if name.startswith("step_end_token"))
    tail = "zero" if any(e and e[-1] < n - 1 for e, n in zip(ends, lengths, strict=True)) else None
    found = {
        f"ddof{freedom}": process_advantages(
            rewards, ends, lengths, scale=scale, epsilon=0, tail=tail or "refuse"
        )
        for freedom, scale in enumerate(("population", "sample"))
    }
    pool = iter(group_advantages([*chain(*rewards)], scale="population", epsilon=0))
    normalised = [[next(pool) for _ in row] for row in rewards]
    return {**found, "advantages": found["ddof1"], "normalised_ddof0": normalised}


CHECKS = {
    "outcome_advantage/half": outcome,
    "outcome_advantage/one_of_four": outcome,
    "outcome_advantage/graded": outcome,
    "outcome_advantage/zero_variance": no_signal,
    "outcome_advantage/singleton_group": no_signal,
    "outcome_advantage/float32_constant_0.1x7": constant_float32,
    "outcome_advantage/float32_constant_0.7x8": constant_float32,
    "outcome_advantage/float32_constant_0.3x6": constant_float32,
    "outcome_advantage/unscorable": unscorable,
    "outcome_advantage/batch_std": batch_std,
    "outcome_advantage/two_rewards": two_rewards,
    "process_advantage/two_outputs": process,
    "process_advantage/hand": process,
    "process_advantage/tail_after_last_step": process,
    "process_advantage/no_steps_in_one_output": process,
    "process_advantage/constant": process,
    "process_advantage/step_count_bias": process,
    "process_advantage/reduces_to_outcome": process,
}
