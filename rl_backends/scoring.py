"""Process rewards: from sampled tokens to steps, from steps to scores, matched by index.

The path of a step score: a scorer says where the steps are in the text; the offsets of the
*sampled* tokens say in which token each of them ends (nothing is tokenised again); the texts of the
steps go to the scorer, which may have an encoding of its own; its scores come back one per step, in
order. A count that does not match is an error, a score that is None is an abstention.

Two rules are ours. The last step ends on the last sampled token, the end token included: tokens
behind it would never be trained (DeepSeekMath 4.1.3 gives them nothing). And a completion without
words is one step with score 0: else a policy could escape a negative advantage by saying nothing.
"""

from __future__ import annotations

import math
import statistics
import traceback
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from stepmark.engines import token_offsets
from stepmark.errors import ConfigError, DataError, VerifierError
from stepmark.prm import Span, step_texts, step_token_ends
from stepmark.protocols import StepScorer
from stepmark.store.samples import ScoredSteps
from stepmark.types import Marked, Rollout, StepItem

__all__ = [
    "StepCounts",
    "ask",
    "check_step_counts",
    "combined",
    "score_steps",
    "step_metrics",
    "steps_of",
]


class Steps(NamedTuple):
    """The steps of one completion."""

    ends: tuple[int, ...]
    """Index of the last sampled token of each, rising; the last one is the last token."""
    texts: tuple[str, ...]
    """What a scorer reads of each, without the blanks around it."""


def steps_of(scorer: StepScorer, rollout: Rollout, tokenizer: Any) -> Steps:
    """Where a scorer's steps end in the sampled tokens, and their texts.

    A step in which no token starts has no token of its own: it joins the one before it.

    Raises:
        DataError: the scorer's spans overlap, leave a gap or do not cover the text.
    """
    text = rollout.text
    if not text.strip():
        return Steps((len(rollout.ids) - 1,), ("",))
    offsets = token_offsets(tokenizer, rollout.ids, text)
    spans = _joined(_checked(scorer, text), offsets)
    return Steps(step_token_ends(spans, offsets), step_texts(text, spans))


def _checked(scorer: StepScorer, text: str) -> list[Span]:
    spans = list(scorer.segment(text))
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    meets = all(one == two for one, two in zip(edges[::2], edges[1::2], strict=True))
    if not spans or not meets or any(start >= end for start, end in spans):
        raise DataError(
            f"The scorer {scorer.key!r} divides a completion of {len(text)} characters into the "
            f"spans {spans[:6]}; they must follow one another from 0 to {len(text)}, none empty. "
            "Mend its segment(text); stepmark.prm.split_steps makes such spans."
        )
    return spans


def _joined(spans: Sequence[Span], offsets: Sequence[Span]) -> list[Span]:
    starts = [start for start, end in offsets if end > start]
    joined: list[Span] = []
    for first, end in spans:
        has_token = bisect_left(starts, first) < bisect_left(starts, end)
        if joined and not has_token:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined


def score_steps(
    scorer: StepScorer, rollouts: Sequence[Rollout], tokenizer: Any
) -> list[ScoredSteps]:
    """Step ends and step scores of each rollout.

    Raises:
        DataError: the scorer gives another number of scores than there are steps, or a score
            outside [0, 1].
        VerifierError: the scorer raised; carries its traceback.
    """
    steps = [steps_of(scorer, rollout, tokenizer) for rollout in rollouts]
    asked = [place for place, row in enumerate(steps) if any(row.texts)]
    items = [StepItem(rollouts[at].prompt.problem, steps[at].texts) for at in asked]
    given = dict(zip(asked, ask(scorer, items), strict=True))
    return [
        ScoredSteps(row.ends, given.get(at, (0.0,) * len(row.ends))) for at, row in enumerate(steps)
    ]


def ask(scorer: StepScorer, items: Sequence[StepItem]) -> list[tuple[float | None, ...]]:
    """What a scorer says of each item, checked: one score in [0, 1], or None, per step.

    Raises:
        DataError: the counts do not match, or a score lies outside [0, 1].
        VerifierError: the scorer raised; carries its traceback.
    """
    if not items:
        return []
    try:
        found = [row.scores for row in scorer.score(items)]
    except Exception as error:
        raise VerifierError(
            f"The scorer {scorer.key!r} raised on {len(items)} completions, the first one of "
            f"{items[0].problem.id!r}. Mend it, then resume. The error:\n{traceback.format_exc()}"
        ) from error
    if len(found) != len(items):
        raise DataError(
            f"The scorer {scorer.key!r} gave {len(found)} rows for {len(items)} completions; it "
            "must give one per completion, in order. Mend its score(items)."
        )
    for item, scores in zip(items, found, strict=True):
        _check_scores(scorer, item, scores)
    return [tuple(None if score is None else float(score) for score in row) for row in found]


def _check_scores(scorer: StepScorer, item: StepItem, scores: Sequence[float | None]) -> None:
    if len(scores) != len(item.steps):
        raise DataError(
            f"The scorer {scorer.key!r} gave {len(scores)} scores for {len(item.steps)} steps of "
            f"{item.problem.id!r}; scores are matched to steps by their index. It must give one "
            "per step, None for a step beyond its limit."
        )
    for place, score in enumerate(scores):
        if score is not None and not (math.isfinite(score) and 0 <= score <= 1):
            raise DataError(
                f"The scorer {scorer.key!r} gave {score!r} for step {place + 1} of "
                f"{item.problem.id!r}; a score lies in [0, 1], or is None. Mend its score(items)."
            )


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
                "splitter, or one of them the weight 0 in reward.scorers."
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
