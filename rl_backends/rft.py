r"""Rejection-sampling fine-tuning: likelihood of the policy's own completions that are right.

Yuan et al. (arXiv:2308.01825), as DeepSeekMath (arXiv:2402.03300), section 5.2.1, puts it beside
SFT and RL: the loss is that of SFT, the data are completions that a verifier let pass.

* ``online = false`` is RFT: completions come from the frozen policy that the outer iteration began
  with; with ``outer = 1`` that is the first policy (the SFT model of the paper);
* ``online = true`` is online RFT: they come from the policy of the moment.

Likelihood is that of the policy itself, at temperature 1, also where sampling was cooler (the paper
samples at 0.7): what is learnt is then surer than what sampled.

The gradient coefficient of a token is 1 where the completion is right and 0 elsewhere: wrong
completions are not pushed away, and all right ones count alike. How their tokens are averaged is
SFT's setting; ``sequence-mean`` is DeepSeekMath's eq. (5), and favours what is short: the first
token of a right guess of three tokens then weighs ten times that of a worked solution of thirty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Rollout

from .advantages import is_flat
from .backend import Models, Need, Prepared, Source, backends
from .config import AlgorithmConfig
from .scores import outcome_score
from .sft import Sft, SftConfig

__all__ = ["Rft", "RftConfig"]


class RftConfig(SftConfig):
    """Settings of rejection-sampling fine-tuning."""

    backend: str = "rft"
    """Name of the backend."""
    online: bool = False
    """Whether completions come from the policy of the moment (online RFT; DeepSeekMath, section
    5.2.1) or from the one that the outer iteration began with (RFT)."""
    threshold: float = Field(default=1.0, gt=0, le=1)
    """Least score, by the first verifier, of a completion that is learnt from."""
    keep_per_problem: int | None = Field(default=4, ge=1)
    """Most completions of one problem in a step, all different (RFT keeps distinct reasoning
    paths only: arXiv:2308.01825, section 3.3). None: all different ones."""


@backends.register("rft")
class Rft(Sft):
    """Learns to write what it wrote right."""

    Config: ClassVar[type[AlgorithmConfig]] = RftConfig
    source: ClassVar[Source] = "rollouts"
    loss_temperature: ClassVar[float] = 1.0
    """Completions that were sampled cooler make the policy surer; see the module."""

    def __init__(self, config: RftConfig | None = None) -> None:
        self.config: RftConfig = config or RftConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """Offline, the policy that the outer iteration began with."""
        return frozenset() if self.config.online else frozenset({"first-policy"})

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """One sample per completion that is kept; none where no completion is right."""
        kept = [(place, row) for place, group in enumerate(groups) for row in self._kept(group)]
        samples = [TrainingSample(row.prompt.ids, row.ids, place) for place, row in kept]
        flat = sum(is_flat([outcome_score(row) for row in group]) for group in groups)
        giving = len({place for place, _ in kept})
        metrics = {
            "rft/kept": float(len(kept)),
            "rft/group_share": giving / max(len(groups), 1),
            "rft/skipped_step": float(not kept),
            "frac_reward_zero_std": flat / max(len(groups), 1),
        }
        return Prepared(samples, metrics)

    def _kept(self, group: Sequence[Marked]) -> list[Rollout]:
        """The first right completions of a group that differ; none without its end token."""
        found: dict[str, Rollout] = {}
        for row in group:
            score = outcome_score(row)
            is_right = score is not None and score >= self.config.threshold
            if is_right and row.rollout.finish == "stop":
                found.setdefault(row.rollout.text.strip(), row.rollout)
        return list(found.values())[: self.config.keep_per_problem]
