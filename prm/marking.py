"""From sampled tokens to steps and from steps to scores: what RL, search and files share.

A scorer says where the steps are in the text; the offsets of the *sampled* tokens say in which
token each of them ends (nothing is tokenised again); the texts of the steps go to the scorer, which
may have an encoding of its own; its scores come back one per step, in order. A count that does not
match is an error, a score that is None is an abstention.
"""

from __future__ import annotations

import math
import traceback
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepmark.engines import token_offsets
from stepmark.errors import DataError, VerifierError
from stepmark.protocols import StepScorer
from stepmark.store.samples import ScoredSteps
from stepmark.types import Rollout, StepItem, StepScores

from .steps import Span, step_texts, step_token_ends

__all__ = ["Steps", "answers", "ask", "joined", "score_steps", "spans_of", "steps_of"]


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
        VerifierError: the scorer raised; carries its traceback.
    """
    text = rollout.text
    if not text.strip():
        return Steps((len(rollout.ids) - 1,), ("",))
    offsets = token_offsets(tokenizer, rollout.ids, text)
    spans = joined(spans_of(scorer, text), offsets)
    return Steps(step_token_ends(spans, offsets), step_texts(text, spans))


def spans_of(scorer: StepScorer, text: str) -> list[Span]:
    """Where the steps of a text are, as a scorer says, checked: together they are the text.

    Raises:
        DataError: the spans overlap, leave a gap or do not cover the text.
        VerifierError: the scorer raised; carries its traceback.
    """
    try:
        spans = list(scorer.segment(text))
    except Exception as error:
        raise VerifierError(
            f"The scorer {scorer.key!r} raised in segment(text), on a completion that begins "
            f"{text[:40]!r}. Mend it, then resume. The error:\n{traceback.format_exc()}"
        ) from error
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    meets = all(one == two for one, two in zip(edges[::2], edges[1::2], strict=True))
    if not spans or not meets or any(start >= end for start, end in spans):
        raise DataError(
            f"The scorer {scorer.key!r} divides a completion of {len(text)} characters into the "
            f"spans {spans[:6]}; they must follow one another from 0 to {len(text)}, none empty. "
            "Mend its segment(text); stepmark.prm.split_steps makes such spans."
        )
    return spans


def joined(spans: Sequence[Span], offsets: Sequence[Span]) -> list[Span]:
    """The spans, with each in which no token starts joined to the one before it."""
    starts = [start for start, end in offsets if end > start]
    kept: list[Span] = []
    for first, end in spans:
        has_token = bisect_left(starts, first) < bisect_left(starts, end)
        if kept and not has_token:
            kept[-1] = (kept[-1][0], end)
        else:
            kept.append((first, end))
    return kept


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
    return [row.scores for row in answers(scorer, items)]


def answers(scorer: StepScorer, items: Sequence[StepItem]) -> list[StepScores]:
    """What `ask` gives, with whether the scorer failed on an item.

    Raises:
        DataError: as `ask`.
        VerifierError: as `ask`.
    """
    if not items:
        return []
    try:
        found = list(scorer.score(items))
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
    for item, row in zip(items, found, strict=True):
        _check_scores(scorer, item, row.scores)
    return [
        replace(row, scores=tuple(None if one is None else float(one) for one in row.scores))
        for row in found
    ]


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
