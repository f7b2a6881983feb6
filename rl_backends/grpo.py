r"""GRPO: group relative policy optimisation, outcome supervision.

DeepSeekMath (arXiv:2402.03300), section 4.1; G completions :math:`o_1 .. o_G` of one problem are
compared with each other, so no critic is needed. To be maximised, eq. (3):

.. math:: \frac1G \sum_i \frac1{|o_i|} \sum_t \left\{
    \min[\rho_{i,t} A_i, \mathrm{clip}(\rho_{i,t}, 1-\epsilon, 1+\epsilon) A_i]
    - \beta D_{KL}[\pi || \pi_{ref}]_{i,t} \right\}

with :math:`\rho_{i,t} = \pi(o_{i,t}) / \pi_{old}(o_{i,t})`, the advantage of section 4.1.2 and the
divergence of eq. (4). The old log-probs are the sampler's: the engine is the model, and the loop
checks at start-up that both agree.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked

from .advantages import Scale, group_advantages, is_flat
from .aggregation import Aggregation, denominators, token_weights
from .backend import Losses, Models, Need, Prepared, Source, backends
from .clipping import clipped_objective, importance_ratio
from .config import AlgorithmConfig
from .kl import kl_tokens

__all__ = ["Grpo", "GrpoConfig"]


class GrpoConfig(AlgorithmConfig):
    """Settings of GRPO; the defaults are DeepSeekMath's, section 4.2, where it says."""

    backend: str = "grpo"
    """Name of the backend."""
    beta: float = Field(default=0.04, ge=0)
    """Weight of the divergence from the reference, in eq. (3). 0 needs no reference model."""
    kl: Literal["k3", "k2"] = "k3"
    """Estimator of the divergence in the loss; ``k3`` is eq. (4)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """How far below 1 the importance ratio may fall (PPO's epsilon)."""
    clip_high: float = Field(default=0.2, gt=0)
    """How far above 1 it may rise; DAPO (arXiv:2503.14476) takes 0.28."""
    scale: Scale = "sample"
    """What the centred rewards are divided by; ``none`` is Dr. GRPO (arXiv:2503.20783)."""
    aggregation: Aggregation = "sequence-mean"
    """How token losses become one number; ``sequence-mean`` is eq. (3)."""
    constant_length: int | None = Field(default=None, ge=1)
    """Length, in tokens, that ``aggregation = "constant"`` divides by (Dr. GRPO)."""
    truncated: Literal["keep", "mask"] = "keep"
    """Completions that ran out of tokens: trained on like others, or left out of the loss and its
    denominators (their rewards still shape the group's mean; DAPO's overlong filtering)."""

    @model_validator(mode="after")
    def _constant_has_length(self) -> Self:
        if self.aggregation == "constant" and self.constant_length is None:
            raise ValueError(
                'aggregation is "constant" and constant_length is none: '
                "set constant_length to the tokens to divide by; rollout.max_tokens is usual."
            )
        return self


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
        """Samples with the advantage of section 4.1.2 on every token, and reference log-probs."""
        samples: list[TrainingSample] = []
        for number, group in enumerate(groups):
            advantages = group_advantages([row.reward for row in group], scale=self.config.scale)
            for row, advantage in zip(group, advantages, strict=True):
                if row.rollout.finish == "length" and self.config.truncated == "mask":
                    continue
                samples.append(_sample(row, number, advantage))
        if samples and models.reference_logps is not None and self.config.beta > 0:
            references = models.reference_logps(samples)
            samples = [
                replace(sample, ref_logps=logps)
                for sample, logps in zip(samples, references, strict=True)
            ]
        flat = sum(is_flat([row.reward for row in group]) for group in groups)
        return Prepared(samples, {"frac_reward_zero_std": flat / max(len(groups), 1)})

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
        if config.beta > 0:
            ref_N = _flat([sample.ref_logps for sample in micro], logps_N)
            kl_N = kl_tokens(logps_N, ref_N, config.kl)
            terms["kl"] = config.beta * (weight_N * kl_N).sum()
            metrics["kl"] = float(kl_N.detach().sum()) / tokens
        return Losses(terms, metrics)


def _sample(row: Marked, group: int, advantage: float) -> TrainingSample:
    rollout = row.rollout
    return TrainingSample(
        prompt_ids=rollout.prompt.ids,
        ids=rollout.ids,
        group=group,
        old_logps=torch.tensor(rollout.logps, dtype=torch.float32),
        advantages=torch.full((len(rollout.ids),), advantage, dtype=torch.float32),
    )


def _flat(rows: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """The rows of a micro-batch end to end, as the forward pass lays out its tokens."""
    present = [row for row in rows if row is not None]
    if len(present) != len(rows):
        raise ValueError("A training sample lacks a tensor that its loss needs; see prepare().")
    return torch.cat(present).to(like)
