"""What is rewarded: what the verifiers say of a completion, what the scorers say of its steps.

Verdicts become one reward, their weighted sum; step scores become one score per step, their mean by
weight. ``outcome`` and ``process`` weigh the two against each other, and a backend decides where:
GRPO adds advantages, because a group's rewards are normalised first; PPO adds rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepmark.config.tables import RefreshTable
from stepmark.errors import ConfigError, VerifierError
from stepmark.prm import scores_whole
from stepmark.protocols import OutcomeVerifier, StepScorer
from stepmark.store.samples import ScoredSteps
from stepmark.types import Item, Marked, Rollout, Status, Verdict
from stepmark.verifiers import weighted_total

from .scoring import combined, score_steps

__all__ = ["Reward", "check_errors"]


@dataclass(frozen=True, slots=True)
class Reward:
    """Verifiers and step scorers with their weights; weight 0 records and rewards nothing."""

    terms: tuple[tuple[OutcomeVerifier, float], ...] = ()
    """Verifiers, each with its factor in the reward."""
    scorers: tuple[tuple[StepScorer, float], ...] = ()
    """Step scorers, each with its share of the step scores, 0 or more."""
    outcome: float = 1.0
    """Weight of what comes from the verdicts, 0 or more."""
    process: float = 1.0
    """Weight of what comes from the step scores, 0 or more; without scorers it means nothing."""
    refresh: RefreshTable = field(default_factory=RefreshTable)
    """How scorers that are reward models learn between outer iterations."""
    largest_single_share: float = 0.5
    """Largest share of the first completions that may be one step where steps are rewarded."""

    def __post_init__(self) -> None:
        for kind, keys in (("verifier", self.keys), ("scorer", self.scorer_keys)):
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise ConfigError(
                    f"The {kind} {twice} stands twice in reward.{kind}s with the same settings. "
                    "Keep one and add the weights."
                )

    @property
    def keys(self) -> list[str]:
        """The keys of the verifiers, in order."""
        return [verifier.key for verifier, _ in self.terms]

    @property
    def scorer_keys(self) -> list[str]:
        """The keys of the step scorers, in order; those of reward models change as they learn."""
        return [scorer.key for scorer, _ in self.scorers]

    @property
    def rewards_steps(self) -> bool:
        """Whether step scores are rewarded, and not only recorded."""
        return self.process > 0 and any(weight > 0 for _, weight in self.scorers)

    @property
    def finds_steps(self) -> bool:
        """Whether what is rewarded is of steps: outcome reward models score whole completions."""
        return self.process > 0 and any(
            weight > 0 and not scores_whole(scorer) for scorer, weight in self.scorers
        )

    def mark(self, rollouts: Sequence[Rollout], key: str) -> list[Verdict]:
        """What one verifier says of these rollouts."""
        verifier = next(verifier for verifier, _ in self.terms if verifier.key == key)
        items = [Item(r.prompt.problem, r.text, r.prompt.text, len(r.ids)) for r in rollouts]
        return list(verifier(items))

    def total(self, verdicts: Mapping[str, Verdict]) -> float | None:
        """The weighted sum of the scores, unitless; None when a score with a weight is missing."""
        return weighted_total(
            (weight, verdicts[verifier.key].score) for verifier, weight in self.terms
        )

    def score(self, rollouts: Sequence[Rollout], key: str, tokenizer: Any) -> list[ScoredSteps]:
        """Where the steps of these rollouts end, and what one scorer says of them."""
        scorer = next(scorer for scorer, _ in self.scorers if scorer.key == key)
        return score_steps(scorer, rollouts, tokenizer)

    def steps(self, scores: Mapping[str, ScoredSteps]) -> ScoredSteps | None:
        """The step scores of one rollout over all scorers; None when none has a weight."""
        return combined({s.key: (weight, scores[s.key]) for s, weight in self.scorers})


def check_errors(groups: Sequence[tuple[Marked, ...]], largest_share: float, step: int) -> None:
    """Stop when too many verdicts of a step are errors.

    Raises:
        VerifierError: carries the first traceback; all verdicts are in the run's store.
    """
    every = [verdict for group in groups for row in group for verdict in row.verdicts.values()]
    wrong = [verdict for verdict in every if verdict.status is Status.ERROR]
    if not wrong or len(wrong) / len(every) <= largest_share:
        return
    first = wrong[0].detail.get("traceback") or wrong[0].detail or wrong[0].reason
    raise VerifierError(
        f"{len(wrong)} of {len(every)} verdicts of step {step} are errors; "
        f"algorithm.max_error_share allows {largest_share:g}. Mend the verifier, then resume. "
        f"The first error:\n{first}"
    )
