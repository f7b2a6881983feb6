"""The reward of a rollout: the weighted sum of what the verifiers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepmark.errors import ConfigError, VerifierError
from stepmark.protocols import OutcomeVerifier
from stepmark.types import Item, Marked, Rollout, Status, Verdict
from stepmark.verifiers import weighted_total

__all__ = ["Reward", "check_errors"]


@dataclass(frozen=True, slots=True)
class Reward:
    """Verifiers and their weights; weight 0 records the verdicts and rewards nothing."""

    terms: tuple[tuple[OutcomeVerifier, float], ...] = ()

    def __post_init__(self) -> None:
        keys = self.keys
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise ConfigError(
                f"The verifier {twice} stands twice in reward.verifiers with the same settings. "
                "Keep one and add the weights."
            )

    @property
    def keys(self) -> list[str]:
        """The keys of the verifiers, in order."""
        return [verifier.key for verifier, _ in self.terms]

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
