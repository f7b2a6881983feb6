r"""Supervised fine-tuning: likelihood of the worked solutions, on the same loop as all backends.

.. math:: L = -\frac{1}{\sum_i |o_i|} \sum_i \sum_t \log \pi(o_{i,t})

over the tokens of each solution and its end token; the prompt is not trained. Its engine is the
data set (`stepmark.rl_backends.demonstrations`): one demonstration per problem, nothing to mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked

from .aggregation import denominators, token_weights
from .backend import Losses, Models, Need, Prepared, Source, backends
from .config import AlgorithmConfig

__all__ = ["Sft", "SftConfig"]


class SftConfig(AlgorithmConfig):
    """Settings of supervised fine-tuning."""

    backend: str = "sft"
    """Name of the backend."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Peak rate of AdamW; 1e-5 is usual for whole models, 2e-3 for a tiny one from scratch."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    """Mean over all tokens of the minibatch, or over solutions of their means over tokens."""


@backends.register("sft")
class Sft:
    """Learns to write the worked solutions of the data."""

    Config: ClassVar[type[AlgorithmConfig]] = SftConfig
    source: ClassVar[Source] = "demonstrations"
    min_group_size: ClassVar[int] = 1

    def __init__(self, config: SftConfig | None = None) -> None:
        self.config = config or SftConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing."""
        return frozenset()

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """One sample per demonstration."""
        rows = [(number, row.rollout) for number, group in enumerate(groups) for row in group]
        return Prepared(
            [TrainingSample(rollout.prompt.ids, rollout.ids, number) for number, rollout in rows]
        )

    def weights(self, minibatch: Sequence[TrainingSample]) -> Mapping[str, float]:
        """Solutions and tokens of the minibatch."""
        return denominators([len(sample.ids) for sample in minibatch])

    def losses(
        self, out: TokenOut, micro: Sequence[TrainingSample], weights: Mapping[str, float]
    ) -> Losses:
        """The negative log-likelihood, in nats per token."""
        weight_N = token_weights(out.lengths, weights, self.config.aggregation, like=out.logps_N)
        return Losses({"nll": -(weight_N * out.logps_N).sum()})
