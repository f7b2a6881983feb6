r"""GRPO: group relative policy optimisation, with outcome and process supervision.

DeepSeekMath (arXiv:2402.03300), section 4.1; G completions :math:`o_1 .. o_G` of one problem are
compared with each other, so no critic is needed. To be maximised, eq. (3):

.. math:: \frac1G \sum_i \frac1{|o_i|} \sum_t \left\{
    \min[\rho_{i,t} A_i, \mathrm{clip}(\rho_{i,t}, 1-\epsilon, 1+\epsilon) A_i]
    - \beta D_{KL}[\pi || \pi_{ref}]_{i,t} \right\}

with :math:`\rho_{i,t} = \pi(o_{i,t}) / \pi_{old}(o_{i,t})` and the divergence of eq. (4). The
advantage is that of section 4.1.2 (outcomes), of 4.1.3 (steps; it differs between tokens), or their
sum by the weights ``reward.outcome`` and ``reward.process``. The old log-probs are the sampler's:
the engine is the model, and the loop checks at start-up that both agree.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked

from .advantages import (
    batch_advantages,
    decoupled_advantages,
    group_advantages,
    is_flat,
)
from .aggregation import denominators, token_weights
from .backend import Losses, Models, Need, Prepared, Source, backends
from .clipping import clipped_objective, importance_ratio, sequence_ratio
from .config import AlgorithmConfig
from .grpo_config import GrpoConfig
from .kl import kl_tokens
from .process import mixed_advantages, process_advantages

__all__ = ["Grpo", "GrpoConfig"]


@backends.register("grpo")
class Grpo:
    """Learns from how completions of one problem compare; see the module's equations."""

    Config: ClassVar[type[AlgorithmConfig]] = GrpoConfig
    source: ClassVar[Source] = "rollouts"
    min_group_size: ClassVar[int] = 2

    def __init__(self, config: GrpoConfig | None = None) -> None:
        self.config = config or GrpoConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """The reference, unless beta is 0."""
        return frozenset({"reference"}) if self.config.beta > 0 else frozenset()

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """Samples with an advantage on every token, and reference log-probs where beta is not 0."""
        drawn = [[_sample(row, number) for row in group] for number, group in enumerate(groups)]
        references = self._references(drawn, models)
        rewards = [[row.reward for row in group] for group in groups]
        if references is not None and self.config.kl_in == "reward":
            rewards = [self._less_kl(*pair) for pair in zip(rewards, references, strict=True)]
        outcomes = self._outcomes(groups, rewards, models)
        flat = [_is_flat(*pair, models) for pair in zip(groups, rewards, strict=True)]
        samples: list[TrainingSample] = []
        useful = 0
        for number, group in enumerate(groups):
            if flat[number] and self.config.flat_groups != "keep":
                continue
            useful += 1
            if self.config.flat_groups == "resample" and useful > (models.groups or useful):
                break  # more were drawn than the step learns from
            advantages = self._tokens(group, outcomes[number], models)
            for place, row in enumerate(group):
                if row.rollout.finish == "length" and self.config.truncated == "mask":
                    continue
                sample = (references or drawn)[number][place]
                values = torch.tensor(advantages[place], dtype=torch.float32)
                samples.append(replace(sample, advantages=values))
        return Prepared(samples, {"frac_reward_zero_std": sum(flat) / max(len(groups), 1)})

    def lacks_groups(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> bool:
        """Whether further problems are to be drawn: too few of these groups teach something."""
        if self.config.flat_groups != "resample":
            return False
        rewards = [[row.reward for row in group] for group in groups]
        flat = sum(_is_flat(*pair, models) for pair in zip(groups, rewards, strict=True))
        return len(groups) - flat < (models.groups or 0)

    def _references(
        self, drawn: list[list[TrainingSample]], models: Models
    ) -> list[list[TrainingSample]] | None:
        """The samples with their log-probs under the reference; None where beta is 0."""
        samples = [sample for group in drawn for sample in group]
        if not samples or models.reference_logps is None or self.config.beta == 0:
            return None
        found = iter(models.reference_logps(samples))
        return [[replace(sample, ref_logps=next(found)) for sample in group] for group in drawn]

    def _less_kl(
        self, rewards: Sequence[float | None], samples: Sequence[TrainingSample]
    ) -> list[float | None]:
        """Rewards less beta times the divergence of each completion, as it was sampled."""
        found: list[float | None] = []
        for reward, sample in zip(rewards, samples, strict=True):
            kl_N = kl_tokens(_one(sample.old_logps), _one(sample.ref_logps), self.config.kl)
            found.append(None if reward is None else reward - self.config.beta * float(kl_N.sum()))
        return found

    def _outcomes(
        self,
        groups: Sequence[tuple[Marked, ...]],
        rewards: Sequence[Sequence[float | None]],
        models: Models,
    ) -> Sequence[Sequence[float]]:
        """The advantage of each completion, section 4.1.2 or what the settings make of it."""
        config = self.config
        if config.rewards == "decoupled":
            each = [
                [[row.verdicts[key].score for key in models.verifiers] for row in group]
                for group in groups
            ]
            return decoupled_advantages(each, list(models.verifiers.values()), scale=config.scale)
        if config.scale_over == "batch" and config.scale != "none":
            return batch_advantages(rewards, scale=config.scale, baseline=config.baseline)
        return [
            group_advantages(row, scale=config.scale, baseline=config.baseline) for row in rewards
        ]

    def _tokens(
        self, group: Sequence[Marked], outcome: Sequence[float], models: Models
    ) -> Sequence[Sequence[float]]:
        """The advantage of each token: the completion's, with that of section 4.1.3 by weight."""
        lengths = [len(row.rollout.ids) for row in group]
        if not models.process:
            return [[each] * length for each, length in zip(outcome, lengths, strict=True)]
        process = process_advantages(
            [row.step_scores or () for row in group],
            [row.step_ends or () for row in group],
            lengths,
            scale=self.config.scale,
        )
        return mixed_advantages(
            outcome, process, outcome_weight=models.outcome, process_weight=models.process
        )

    def weights(self, minibatch: Sequence[TrainingSample]) -> Mapping[str, float]:
        """Completions and tokens of the minibatch: the G and the lengths of eq. (3)."""
        return denominators([len(sample.ids) for sample in minibatch])

    def losses(
        self, out: TokenOut, micro: Sequence[TrainingSample], weights: Mapping[str, float]
    ) -> Losses:
        """Eq. (3), its sign turned, in two terms: ``policy`` and ``kl``."""
        config, logps_N = self.config, out.logps_N
        weight_N = token_weights(
            out.lengths, weights, config.aggregation, config.constant_length, like=logps_N
        )
        advantages_N = _flat([sample.advantages for sample in micro], logps_N)
        old_N = _flat([sample.old_logps for sample in micro], logps_N)
        if config.ratio == "sequence":
            ratio_N = sequence_ratio(logps_N, old_N, out.lengths)
        else:
            ratio_N = importance_ratio(logps_N, old_N)
        clipped = clipped_objective(ratio_N, advantages_N, config.clip_low, config.clip_high)
        terms = {"policy": -(weight_N * clipped.objective_N).sum()}
        tokens = weights["tokens"]
        metrics = {
            "clip_ratio/low_mean": float(clipped.low_N.sum()) / tokens,
            "clip_ratio/high_mean": float(clipped.high_N.sum()) / tokens,
            "clip_ratio/region_mean": float((clipped.low_N | clipped.high_N).sum()) / tokens,
            "ratio_mean": float(ratio_N.detach().sum()) / tokens,
        }
        if config.beta > 0 and config.kl_in == "reward":
            ref_N = _flat([sample.ref_logps for sample in micro], logps_N)
            metrics["kl"] = float(kl_tokens(logps_N.detach(), ref_N, config.kl).sum()) / tokens
        elif config.beta > 0:
            ref_N = _flat([sample.ref_logps for sample in micro], logps_N)
            kl_N = kl_tokens(logps_N, ref_N, config.kl)
            terms["kl"] = config.beta * (weight_N * kl_N).sum()
            metrics["kl"] = float(kl_N.detach().sum()) / tokens
        return Losses(terms, metrics)


def _sample(row: Marked, group: int) -> TrainingSample:
    rollout = row.rollout
    return TrainingSample(
        prompt_ids=rollout.prompt.ids,
        ids=rollout.ids,
        group=group,
        old_logps=torch.tensor(rollout.logps, dtype=torch.float32),
    )


def _is_flat(group: Sequence[Marked], rewards: Sequence[float | None], models: Models) -> bool:
    """Whether a group teaches nothing: neither its outcomes nor its steps differ."""
    steps = [score for row in group for score in row.step_scores or ()] if models.process else []
    return (models.outcome == 0 or is_flat(rewards)) and is_flat(steps)


def _one(row: Tensor | None) -> Tensor:
    if row is None:
        raise ValueError("A training sample lacks a tensor that its loss needs; see prepare().")
    return row


def _flat(rows: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """The rows of a micro-batch end to end, as the forward pass lays out its tokens."""
    return torch.cat([_one(row) for row in rows]).to(like)
