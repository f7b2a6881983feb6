r"""DPO: direct preference optimisation, from data, from marked completions, and by self-play.

Rafailov et al. (arXiv:2305.18290), eq. (7), to be minimised over pairs of a better completion
:math:`y_w` and a worse one :math:`y_l` of one prompt:

.. math:: -\log\sigma(\beta h), \qquad
    h = \log\frac{\pi(y_w)}{\pi_{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_{ref}(y_l)}

A log-prob of a completion is the sum over its tokens, the end token included, the prompt excluded.
Its gradient is section 4's: :math:`-\beta\,\sigma(-\beta h)` on every token of :math:`y_w`, the
opposite on every token of :math:`y_l`. `preferences` holds this loss, its conservative form and
IPO (arXiv:2310.12036). The three backends differ in where their pairs come from:

* ``dpo``: the chosen and rejected completions of a data set;
* ``online-dpo``: the policy's own completions of this step, as verifiers marked them; iterative
  with ``outer`` above 1, which renews the reference (DeepSeekMath's Algorithm 1, line 3);
* ``spin``: the worked solution over what the policy wrote (arXiv:2401.01335, eq. (4.7), whose
  lambda is beta); the opponent is the reference, renewed with it in every outer iteration.

Policy and reference are one model before the first update, so that the first loss is known; the
loop checks it (`Dpo.first_loss`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from stepmark.errors import ConfigError
from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample, end_to_end
from stepmark.types import Marked, Rollout

from .advantages import is_flat
from .backend import Losses, Models, Need, Prepared, Source, backends
from .config import AlgorithmConfig
from .dpo_config import DpoConfig, OnlineDpoConfig, SpinConfig
from .preferences import (
    loss_at_reference,
    pair_logps,
    pairs_from_group,
    preference_losses,
    preference_metrics,
)
from .scores import outcome_score

__all__ = ["Dpo", "DpoConfig", "OnlineDpo", "OnlineDpoConfig", "Spin", "SpinConfig"]


class Preference(NamedTuple):
    """Two completions of one problem, the better one first."""

    chosen: Rollout
    rejected: Rollout


@backends.register("dpo")
class Dpo:
    """Learns from the preferences of a data set; see the module's equation."""

    Config: ClassVar[type[AlgorithmConfig]] = DpoConfig
    source: ClassVar[Source] = "preferences"
    min_group_size: ClassVar[int] = 1
    loss_temperature: ClassVar[float] = 1.0
    """A likelihood is compared with a likelihood, however the completions were sampled."""

    def __init__(self, config: DpoConfig | None = None) -> None:
        self.config = config or DpoConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """The reference, unless the loss is free of it."""
        return frozenset() if self.config.reference_free else frozenset({"reference"})

    @property
    def first_loss(self) -> float | None:
        """The loss while policy and reference are one model; None where none is known."""
        free = self.config.reference_free
        return None if free else loss_at_reference(self.config.loss, self.config.beta)

    def pairs(self, group: Sequence[Marked]) -> list[Preference]:
        """The preferences that a group gives; here it is one pair of the data."""
        chosen, rejected = (row.rollout for row in group)
        return [] if _same(chosen, rejected) else [Preference(chosen, rejected)]

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """Two samples per pair, the chosen one first; none where no group gives a pair."""
        found = [(place, pair) for place, group in enumerate(groups) for pair in self.pairs(group)]
        samples = [
            TrainingSample(row.prompt.ids, row.ids, place, pair=number, is_chosen=is_chosen)
            for number, (place, pair) in enumerate(found)
            for row, is_chosen in ((pair.chosen, True), (pair.rejected, False))
        ]
        if samples and models.reference_logps is not None and not self.config.reference_free:
            references = zip(samples, models.reference_logps(samples), strict=True)
            samples = [replace(sample, ref_logps=logps) for sample, logps in references]
        giving = len({place for place, _ in found})
        metrics = {
            "pairs": float(len(found)),
            "pairs/group_share": giving / max(len(groups), 1),
            "pairs/skipped_step": float(not found),
        }
        return Prepared(samples, metrics | self._of_groups(groups))

    def _of_groups(self, groups: Sequence[tuple[Marked, ...]]) -> dict[str, float]:
        """Further metrics of a step's groups."""
        return {}

    def weights(self, minibatch: Sequence[TrainingSample]) -> Mapping[str, float]:
        """Pairs of the minibatch."""
        return {"pairs": len(minibatch) / 2}

    def losses(
        self, out: TokenOut, micro: Sequence[TrainingSample], weights: Mapping[str, float]
    ) -> Losses:
        """The mean over pairs of the preference loss."""
        config = self.config
        _check_pairs(micro)
        free = config.reference_free
        ref_N = None if free else end_to_end(micro, "ref_logps", like=out.logps_N)
        pairs = pair_logps(out.logps_N, ref_N, out.lengths)
        losses_P = preference_losses(
            pairs, loss=config.loss, beta=config.beta, label_smoothing=config.label_smoothing
        )
        sums = preference_metrics(pairs, config.beta)
        metrics = {name: float(row_P.sum()) / weights["pairs"] for name, row_P in sums.items()}
        return Losses({"preference": losses_P.sum() / weights["pairs"]}, metrics)


@backends.register("online-dpo")
class OnlineDpo(Dpo):
    """Learns from pairs of the policy's own completions, as verifiers marked them."""

    Config: ClassVar[type[AlgorithmConfig]] = OnlineDpoConfig
    source: ClassVar[Source] = "rollouts"
    min_group_size: ClassVar[int] = 2

    def __init__(self, config: OnlineDpoConfig | None = None) -> None:
        self.config: OnlineDpoConfig = config or OnlineDpoConfig()

    def pairs(self, group: Sequence[Marked]) -> list[Preference]:
        """Better over worse; a completion whose verifier abstained is in no pair."""
        config = self.config
        found = pairs_from_group(
            self._scores(group),
            by=config.pairing,
            right_from=config.right_from,
            margin=config.margin,
            cap=config.pairs_per_problem,
        )
        rows = [row.rollout for row in group]
        return [Preference(rows[pair.chosen], rows[pair.rejected]) for pair in found]

    def _scores(self, group: Sequence[Marked]) -> list[float | None]:
        if self.config.pairing == "right-over-wrong":
            return [outcome_score(row) for row in group]
        return [row.reward for row in group]

    def _of_groups(self, groups: Sequence[tuple[Marked, ...]]) -> dict[str, float]:
        flat = sum(is_flat(self._scores(group)) for group in groups)
        return {"frac_reward_zero_std": flat / max(len(groups), 1)}


@backends.register("spin")
class Spin(Dpo):
    """Learns to write like the worked solutions, against what the policy wrote itself."""

    Config: ClassVar[type[AlgorithmConfig]] = SpinConfig
    source: ClassVar[Source] = "self-play"

    def __init__(self, config: SpinConfig | None = None) -> None:
        self.config: SpinConfig = config or SpinConfig()

    @property
    def needs(self) -> frozenset[Need]:
        """The reference, and the policy that the outer iteration began with as the opponent."""
        opponent: frozenset[Need] = frozenset({"first-policy"})
        return super().needs if self.config.online else super().needs | opponent

    def pairs(self, group: Sequence[Marked]) -> list[Preference]:
        """The demonstration, last in its group, over each completion that differs from it."""
        *drawn, shown = (row.rollout for row in group)
        return [Preference(shown, row) for row in drawn if not _same(shown, row)]


def _same(one: Rollout, other: Rollout) -> bool:
    """Whether nothing tells two completions apart: there is no preference between them."""
    return one.ids == other.ids or one.text == other.text


def _check_pairs(micro: Sequence[TrainingSample]) -> None:
    """The law of `pack`: whole pairs, the chosen completion first."""
    couples = zip(micro[::2], micro[1::2], strict=False)
    is_whole = all(a.pair == b.pair and a.is_chosen > b.is_chosen for a, b in couples)
    if len(micro) % 2 or not is_whole:
        shown = [(sample.pair, sample.is_chosen) for sample in micro[:4]]
        raise ConfigError(
            f"A micro-batch of {len(micro)} samples begins with (pair, is chosen) {shown}; it must "
            "hold whole pairs, each chosen one before its rejected one. Make it with pack()."
        )
