r"""PPO: proximal policy optimisation with a critic, for completions that verifiers mark.

Schulman et al. (arXiv:1707.06347); to be maximised, eq. (9):

.. math:: E_t[L^{CLIP}_t - c_1 L^{VF}_t + c_2 S_t]

* eq. (7): :math:`L^{CLIP}_t = \min[\rho_t A_t, \mathrm{clip}(\rho_t, 1-\epsilon, 1+\epsilon) A_t]`
  with eq. (6): :math:`\rho_t = \pi(o_t) / \pi_{old}(o_t)`: `clipping.clipped_objective`;
* eqs. (11) and (12), which are eq. (16) of GAE (arXiv:1506.02438):
  :math:`A_t = \delta_t + \gamma\lambda A_{t+1}` and
  :math:`\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)`: `gae.generalized_advantages`;
* :math:`L^{VF}_t = (V(s_t) - R_t)^2`, halved and clipped: `gae.value_loss`; S is the entropy.

The state :math:`s_t` is the prompt and the tokens before :math:`o_t`. The reward of a token is that
of InstructGPT (arXiv:2203.02155), with the rewards of steps:

.. math:: r_t = -\beta (\log \pi_{old} - \log \pi_{ref})_t + w_p\, \text{step}_t
    + 1[t = |o|]\, w_o\, R

A critic of its own has an optimizer of its own, so :math:`c_1` means nothing there and is 1. A
completion whose verifier abstained is left out: of both losses and of what they are divided by.

Legend of shape suffixes: N sampled tokens of a micro-batch, flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample, end_to_end
from stepmark.types import Marked

from .advantages import is_scored
from .aggregation import denominators, token_weights
from .backend import Losses, Models, Need, Prepared, Source, backends
from .clipping import clipped_objective, importance_ratio
from .config import AlgorithmConfig
from .gae import (
    explained_variance,
    generalized_advantages,
    shaped_rewards,
    step_rewards,
    value_loss,
    whiten,
)
from .ppo_config import PpoConfig

__all__ = ["Ppo", "PpoConfig"]


@backends.register("ppo")
class Ppo:
    """Learns from how much better a token turned out than the critic expected."""

    Config: ClassVar[type[AlgorithmConfig]] = PpoConfig
    source: ClassVar[Source] = "rollouts"
    min_group_size: ClassVar[int] = 1

    def __init__(self, config: PpoConfig | None = None) -> None:
        self.config = config or PpoConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """The critic, and the reference unless beta is 0."""
        return frozenset({"critic", "reference"} if self.config.beta > 0 else {"critic"})

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """Samples with advantages and returns; while the critic warms up, advantages are 0."""
        config = self.config
        numbered = [
            (number, row)
            for number, group in enumerate(groups)
            for row in group
            if self._is_learnt(row, models)
        ]
        is_warm = models.step > config.critic_warmup_steps
        if not numbered:
            return Prepared([], trains_policy=is_warm)
        rows = [row for _, row in numbered]
        samples = self._samples(numbered, models)
        rewards = self._rewards(samples, rows, models)
        values, behind = self._values(samples, rows, models)
        advantages, returns = generalized_advantages(
            rewards, values, gamma=config.gamma, lam=config.gae_lambda, next_values=behind
        )
        if not is_warm:
            advantages = [torch.zeros_like(row) for row in advantages]
        elif config.whiten:
            advantages = whiten(advantages)
        metrics = self._metrics(samples, rewards, values, returns)
        columns = zip(samples, advantages, values, returns, strict=True)
        learnt = [replace(s, advantages=a, values=v, returns=r) for s, a, v, r in columns]
        return Prepared(learnt, metrics, trains_policy=is_warm)

    def _is_learnt(self, row: Marked, models: Models) -> bool:
        """Whether a completion has every reward that has a weight, and is not masked."""
        if row.rollout.finish == "length" and self.config.truncated == "mask":
            return False
        has_steps = any(is_scored(score) for score in row.step_scores or ())
        return (is_scored(row.reward) or models.outcome == 0) and (has_steps or models.process == 0)

    def _samples(
        self, numbered: Sequence[tuple[int, Marked]], models: Models
    ) -> list[TrainingSample]:
        """The completions with their log-probs under the reference, where beta is not 0."""
        samples = [
            TrainingSample(
                prompt_ids=row.rollout.prompt.ids,
                ids=row.rollout.ids,
                group=number,
                old_logps=torch.tensor(row.rollout.logps, dtype=torch.float32),
            )
            for number, row in numbered
        ]
        if self.config.beta == 0 or models.reference_logps is None:
            return samples
        references = zip(samples, models.reference_logps(samples), strict=True)
        return [replace(sample, ref_logps=logps.detach()) for sample, logps in references]

    def _rewards(
        self, samples: Sequence[TrainingSample], rows: Sequence[Marked], models: Models
    ) -> list[Tensor]:
        """The reward of every token; see the module's last equation."""
        lengths, kind = [len(sample.ids) for sample in samples], self.config.step_reward
        outcomes = [
            models.outcome * row.reward if is_scored(row.reward) and not self._goes_on(row) else 0.0
            for row in rows
        ]
        steps = [
            models.process * step_rewards(row.step_scores or (), row.step_ends or (), length, kind)
            for row, length in zip(rows, lengths, strict=True)
        ]
        return shaped_rewards(
            [_given(sample.old_logps) for sample in samples],
            _references(samples),
            outcomes,
            beta=self.config.beta,
            steps=steps if models.process > 0 else None,
        )

    def _goes_on(self, row: Marked) -> bool:
        """Whether a completion was cut and is to be taken as unfinished."""
        return row.rollout.finish == "length" and self.config.truncated == "bootstrap"

    def _values(
        self, samples: Sequence[TrainingSample], rows: Sequence[Marked], models: Models
    ) -> tuple[list[Tensor], list[float | None]]:
        """The critic's values before each token, and behind the last one of what goes on."""
        if models.values is None:
            raise ValueError("PPO needs a critic: give Models.values, as the loop does.")
        # A value comes from the state before its token: the token that is added is never read.
        asked = [
            TrainingSample(sample.prompt_ids, (*sample.ids, sample.ids[-1]))
            if self._goes_on(row)
            else sample
            for sample, row in zip(samples, rows, strict=True)
        ]
        found = [row.detach() for row in models.values(asked)]
        pairs = list(zip(found, (len(sample.ids) for sample in samples), strict=True))
        behind = [float(row[-1]) if len(row) > length else None for row, length in pairs]
        return [row[:length] for row, length in pairs], behind

    def _metrics(
        self,
        samples: Sequence[TrainingSample],
        rewards: Sequence[Tensor],
        values: Sequence[Tensor],
        returns: Sequence[Tensor],
    ) -> dict[str, float]:
        """Of the step as it was sampled, before anything is learnt from it."""
        count, tokens = len(samples), sum(len(sample.ids) for sample in samples)
        found = {
            "critic/explained_variance": explained_variance(values, returns),
            "critic/values_mean": _total(values) / tokens,
            "critic/returns_mean": _total(returns) / tokens,
            "objective/rlhf_reward": _total(rewards) / count,
        }
        if references := _references(samples):
            olds = [_given(sample.old_logps) for sample in samples]
            kl = _total([old - ref for old, ref in zip(olds, references, strict=True)])
            found |= {"kl": kl / tokens, "objective/kl": kl / count}
            found["objective/non_score_reward"] = -self.config.beta * kl / count
        return found

    def weights(self, minibatch: Sequence[TrainingSample]) -> Mapping[str, float]:
        """Completions and tokens of the minibatch."""
        return denominators([len(sample.ids) for sample in minibatch])

    def losses(
        self, out: TokenOut, micro: Sequence[TrainingSample], weights: Mapping[str, float]
    ) -> Losses:
        """Eq. (9), its sign turned, in the terms ``policy``, ``value`` and ``entropy``."""
        config, logps_N, values_N = self.config, out.logps_N, _given(out.values_N)
        weight_N = token_weights(out.lengths, weights, config.aggregation, like=logps_N)
        old_N = end_to_end(micro, "old_logps", like=logps_N)
        advantages_N = end_to_end(micro, "advantages", like=logps_N)
        ratio_N = importance_ratio(logps_N, old_N)
        clipped = clipped_objective(ratio_N, advantages_N, config.clip_low, config.clip_high)
        fit = value_loss(
            values_N,
            end_to_end(micro, "values", like=values_N),
            end_to_end(micro, "returns", like=values_N),
            config.value_clip,
        )
        terms = {
            "policy": -(weight_N * clipped.objective_N).sum(),
            "value": config.value_factor * (weight_N * fit.losses_N).sum(),
        }
        if config.entropy_weight > 0:
            terms["entropy"] = -config.entropy_weight * (weight_N * _given(out.entropies_N)).sum()
        sums = {
            "clip_ratio/low_mean": clipped.low_N,
            "clip_ratio/high_mean": clipped.high_N,
            "clip_ratio/region_mean": clipped.low_N | clipped.high_N,
            "ratio_mean": ratio_N.detach(),
            "policy/approxkl_avg": (logps_N.detach() - old_N).square() / 2,
            "val/clipfrac_avg": fit.clipped_N,
        }
        metrics = {name: float(row_N.sum()) / weights["tokens"] for name, row_N in sums.items()}
        return Losses(terms, metrics)


def _references(samples: Sequence[TrainingSample]) -> list[Tensor] | None:
    found = [sample.ref_logps for sample in samples if sample.ref_logps is not None]
    return found or None


def _total(rows: Sequence[Tensor]) -> float:
    return sum(float(row.double().sum()) for row in rows)


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError("PPO lacks log-probs, values or entropies; see Ppo.needs and prepare().")
    return tensor
