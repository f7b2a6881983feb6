"""Process rewards: from sampled tokens to steps, from steps to scores, matched by index.

The path of a step score is that of `stepmark.prm.marking`, which files and search take too; here
several scorers become one, and the steps of a run are counted.

Two rules are ours. The last step ends on the last sampled token, the end token included: tokens
behind it would never be trained (DeepSeekMath 4.1.3 gives them nothing). And a completion without
words is one step with score 0: else a policy could escape a negative advantage by saying nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from stepmark.errors import ConfigError
from stepmark.prm.marking import ask, score_steps, steps_of
from stepmark.store.samples import ScoredSteps
from stepmark.types import Marked

__all__ = [
    "StepCounts",
    "ask",
    "check_scored",
    "check_step_counts",
    "combined",
    "score_steps",
    "step_metrics",
    "steps_of",
]


def combined(rows: Mapping[str, tuple[float, ScoredSteps]]) -> ScoredSteps | None:
    """One score per step: the mean over the scorers by weight; None where one of them has none.

    Scorers with weight 0 are recorded and count for nothing.

    Args:
        rows: scorer key -> its weight and what it says of one completion.

    Raises:
        ConfigError: scorers with a weight divide the completion into different steps.

    >>> one, two = ScoredSteps((1, 3), (1.0, 0.0)), ScoredSteps((1, 3), (0.5, None))
    >>> combined({"a@1": (3.0, one), "b@1": (1.0, two)}).scores
    (0.875, None)
    """
    used = {key: (weight, row) for key, (weight, row) in rows.items() if weight > 0}
    for (one, (_, first)), (two, (_, second)) in pairwise(used.items()):
        if first.ends != second.ends:
            raise ConfigError(
                f"The scorers {one!r} and {two!r} find {len(first.ends)} and {len(second.ends)} "
                f"steps in a completion, ending on the tokens {list(first.ends)[:6]} and "
                f"{list(second.ends)[:6]}: such scores cannot be added up. Give both the same "
                "splitter (an outcome reward model has one step, the whole), or one of them the "
                "weight 0 in reward.scorers."
            )
    if not used:
        return None
    total = math.fsum(weight for weight, _ in used.values())
    columns = zip(*(row.scores for _, row in used.values()), strict=True)
    weights = [weight / total for weight, _ in used.values()]
    return ScoredSteps(
        next(iter(used.values()))[1].ends, tuple(_mean(column, weights) for column in columns)
    )


def _mean(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return None
    # The sum of rounded shares may lie a hair above 1.
    return min(1.0, math.fsum(w * score for w, score in zip(weights, known, strict=True)))


class StepCounts(NamedTuple):
    """How many steps the first completions have."""

    mean: float
    least: int
    most: int
    single_share: float
    """Share of completions with one step only."""

    def __str__(self) -> str:
        return (
            f"{self.mean:.1f} steps per completion (from {self.least} to {self.most}; "
            f"{self.single_share:.0%} have one only)"
        )


def count_steps(groups: Sequence[tuple[Marked, ...]]) -> StepCounts | None:
    """Steps per completion; None where there are no step scores."""
    counts = [
        len(row.step_scores) for group in groups for row in group if row.step_scores is not None
    ]
    if not counts:
        return None
    single = sum(count <= 1 for count in counts) / len(counts)
    return StepCounts(statistics.fmean(counts), min(counts), max(counts), single)


def check_step_counts(
    groups: Sequence[tuple[Marked, ...]], largest_single_share: float = 0.5
) -> StepCounts | None:
    """Steps per completion of the first groups; None without step scores.

    Args:
        groups: marked completions by problem.
        largest_single_share: share of completions that may be one step.

    Raises:
        ConfigError: more completions have one step, so that there is no process to reward.
    """
    counts = count_steps(groups)
    if counts is not None and counts.single_share > largest_single_share:
        raise ConfigError(
            f"Most of the first completions are one step: {counts}. Step rewards would be outcome "
            "rewards under another name. Check the scorer's splitter against the samples of this "
            "run, teach the policy to show its work (SFT), set reward.process = 0, or, where RL is "
            "to find the steps, reward.largest_single_share = 1."
        )
    return counts


def check_scored(groups: Sequence[tuple[Marked, ...]]) -> None:
    """Refuse to begin where scores are rewarded, and no step of any completion has one.

    Raises:
        ConfigError: all are None.
    """
    rows = [row.step_scores for group in groups for row in group if row.step_scores]
    if rows and all(score is None for scores in rows for score in scores):
        raise ConfigError(
            f"None of the first {len(rows)} completions has a score, so that nothing would be "
            "learnt from scores. The scorer failed on all of them, or they are longer than it "
            "reads: raise encoding.max_tokens where it is trained, lower rollout.max_tokens, or "
            "set reward.process = 0."
        )


def step_metrics(groups: Sequence[tuple[Marked, ...]]) -> dict[str, float]:
    """What is written about the steps of a step's groups; empty without step scores."""
    counts = count_steps(groups)
    if counts is None:
        return {}
    scores = [score for group in groups for row in group for score in row.step_scores or ()]
    known = [score for score in scores if score is not None]
    found = {
        "steps/mean_count": counts.mean,
        "steps/min_count": float(counts.least),
        "steps/max_count": float(counts.most),
        "steps/single_share": counts.single_share,
        "steps/abstain_share": 1 - len(known) / len(scores),
    }
    return found | ({"steps/score_mean": statistics.fmean(known)} if known else {})
