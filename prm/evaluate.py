"""A step scorer examined on labelled solutions: first errors, steps, calibration, outcome.

::

    scored = score_rows(scorer, rows)
    found = evaluate(scored, name="processbench-gsm8k", scorer=scorer.key)

Figures that floors can reach say little: `Evaluation.floors` holds what a constant guess and one
who knows only the final answer would reach on the same rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from stepmark.errors import ConfigError, DataError
from stepmark.protocols import StepScorer
from stepmark.types import LabelledSteps, StepItem

from .aggregation import AGGREGATIONS, aggregate, rank_of
from .floors import constant_guess, outcome_oracle
from .metrics import (
    UNTOLD,
    Calibration,
    FirstErrors,
    auroc,
    average_precision,
    best_threshold,
    calibration,
    first_below,
    first_errors,
    rank_correlation,
    share_of_last_minima,
)
from .splits import is_in_share

__all__ = ["Evaluation", "Scored", "StepFigures", "evaluate", "score_rows"]

AT_ONCE = 64
"""Solutions that a scorer is asked at a time: often enough to show progress and to stop."""


class Scored(NamedTuple):
    """A labelled solution and what a scorer said of its steps."""

    row: LabelledSteps
    scores: tuple[float | None, ...]
    failed: bool = False
    """Whether there is no score because the scorer failed, which may pass."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """How well right and wrong steps are told apart; labels between 0 and 1 count from one half."""

    right: int
    wrong: int
    auroc: float | None
    """Over all labelled steps. High also for a scorer that knows only which positions are risky."""
    within_auroc: float | None
    """Mean over solutions that have steps of both kinds. Where labels stop at the first error the
    wrong step is the last labelled one, and scores that only fall along a solution reach 1."""
    mixed: int
    """How many solutions have."""
    same_position_auroc: float | None
    """Over pairs of a right and a wrong step at the same position: what a scorer that knows only
    positions has one half of."""
    comparable: int
    """Labelled steps at positions that have both kinds."""
    by_position: tuple[tuple[int, int, float | None], ...]
    """Position from 1, labelled steps there, their AUROC; the tenth stands for all from there."""
    average_precision: float | None
    """Of finding wrong steps by low scores."""
    balanced_accuracy: float | None
    """Mean of the shares of right steps at or above the threshold and of wrong ones below."""
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All figures of one scorer on one set of rows."""

    name: str
    scorer: str
    rows: int
    problems: int
    unscored_steps: int
    """Steps beyond the scorer's limit."""
    unscored_rows: int
    """Solutions without a single score, which count as missed; failed ones are apart."""
    failed_rows: int
    """Solutions on which the scorer failed, which count as missed too."""
    threshold: float
    fitted_on: int
    """Rows of the development part on which the threshold was fitted, which are left out of all
    figures; 0 for a threshold that was given."""
    errors: FirstErrors | None
    """None where rows do not tell their first error, or tell of one kind only."""
    floors: Mapping[str, float]
    """F1 of first errors by those who know nothing of the steps."""
    steps: StepFigures
    last_minima: float | None
    """Share of solutions whose least score is at the last step; high for outcome models."""
    long: int
    """How many solutions with two or more scored steps that is of."""
    length_correlation: float | None
    """Spearman's, of the aggregated score and the number of steps."""
    whole: int
    """Solutions that have an aggregated score, as all of their steps have one."""
    aggregation: str
    outcome_auroc: float | None
    """Of the aggregated score, for right final answers; None where rows do not tell."""
    answered: int
    """Solutions with an aggregated score whose final answer is known to be right or wrong."""
    confusion: Mapping[tuple[int, int], int]
    """Solutions with a score by first error and prediction, each -1 for none."""


def score_rows(
    scorer: StepScorer,
    rows: Sequence[LabelledSteps],
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[Scored]:
    """Each row with its scores, in order, as they become ready.

    Raises:
        DataError: the scorer gives another number of scores than there are steps.
    """
    waiting, done = iter(rows), 0
    while part := list(islice(waiting, AT_ONCE)):
        found = scorer.score([_item(row) for row in part])
        for row, said in zip(part, found, strict=True):
            if len(said.scores) != len(row.steps):
                raise DataError(
                    f"The scorer {scorer.key!r} gave {len(said.scores)} scores for the "
                    f"{len(row.steps)} steps of problem {row.problem.id!r}; one each is needed. "
                    "Mend the scorer: stepmark verifiers check shows how contracts are tested."
                )
            yield Scored(row, said.scores, said.failed)
        done += len(part)
        if on_progress is not None:
            on_progress(done, len(rows))


def _item(row: LabelledSteps) -> StepItem:
    """What a scorer is asked: to the problem belong the columns beside its text."""
    return StepItem(replace(row.problem, meta={**row.problem.meta, **row.meta}), row.steps)


def evaluate(
    scored: Sequence[Scored],
    *,
    name: str,
    scorer: str,
    threshold: float | None = 0.5,
    dev_share: float = 0.2,
    aggregation: str = "min",
) -> Evaluation:
    """The figures of a scorer on rows that it has scored.

    Args:
        scored: from `score_rows`; labels of ProcessBench, of PRM800K, or of your own.
        name: of the data, for tables.
        scorer: its key.
        threshold: below it a step is called wrong; None fits it on a development part.
        dev_share: of the problems that part takes, by a hash of their text; with None above.
        aggregation: for the figures about whole solutions.

    Raises:
        ConfigError: there are no rows, or a setting is out of range.
    """
    _check(threshold, aggregation)
    fitted_on = 0
    if threshold is None:
        threshold, scored, fitted_on = _fitted(scored, dev_share)
    if not scored:
        raise ConfigError(f"{name} has no rows to evaluate. Give a file that has some.")
    told, labels = _told(scored)
    said = [first_below(one.scores, threshold) for one in told]
    both = any(label >= 0 for label in labels) and any(label < 0 for label in labels)
    totals = [rank_of(one.scores, aggregation) for one in scored]
    known = [(one, total) for one, total in zip(scored, totals, strict=True) if total is not None]
    answered = [(total, one.row.final_correct) for one, total in known]
    outcomes = [(total, right) for total, right in answered if right is not None]
    return Evaluation(
        name=name,
        scorer=scorer,
        rows=len(scored),
        problems=len({one.row.problem.text for one in scored}),
        unscored_steps=sum(one.scores.count(None) for one in scored if not one.failed),
        unscored_rows=sum(set(one.scores) == {None} for one in scored if not one.failed),
        failed_rows=sum(one.failed for one in scored),
        threshold=threshold,
        fitted_on=fitted_on,
        errors=first_errors(said, labels) if both else None,
        floors=_floors(told, labels) if both else {},
        steps=_step_figures(scored, threshold),
        last_minima=share_of_last_minima([one.scores for one in scored]),
        long=sum(sum(score is not None for score in one.scores) > 1 for one in scored),
        length_correlation=rank_correlation(
            [total for _, total in known], [len(one.scores) for one, _ in known]
        ),
        whole=len(known),
        aggregation=aggregation,
        outcome_auroc=auroc([total for total, _ in outcomes], [right for _, right in outcomes]),
        answered=len(outcomes),
        confusion=Counter(p for p in zip(labels, said, strict=True) if p[1] != UNTOLD),
    )


def _check(threshold: float | None, aggregation: str) -> None:
    if aggregation not in AGGREGATIONS:
        aggregate((), aggregation)  # says which there are
    if threshold is not None and not 0 <= threshold <= 1:
        raise ConfigError(f"The threshold is {threshold}; scores lie in [0, 1]. Give one there.")


def _told(scored: Sequence[Scored]) -> tuple[list[Scored], list[int]]:
    """The rows that tell their first error, and that error."""
    found = [(one, one.row.first_error) for one in scored]
    pairs = [(one, error) for one, error in found if error is not None]
    return [one for one, _ in pairs], [error for _, error in pairs]


def _fitted(scored: Sequence[Scored], share: float) -> tuple[float, list[Scored], int]:
    """A threshold, the rows that it was not fitted on, and how many it was."""
    if not 0 < share < 1:
        raise ConfigError(
            f"The development part is a share of {share}; it must lie between 0 and 1 to fit a "
            "threshold. Give --threshold 0.5 to fit none."
        )
    dev = [one for one in scored if is_in_share(one.row.problem.text, share)]
    rest = [one for one in scored if not is_in_share(one.row.problem.text, share)]
    told, labels = _told(dev)
    return best_threshold([one.scores for one in told], labels), rest, len(dev)


def _floors(told: Sequence[Scored], labels: Sequence[int]) -> dict[str, float]:
    found = {"constant guess": constant_guess(labels)}
    right = [one.row.final_correct for one in told]
    if None not in right:
        lengths = [len(one.scores) for one in told]
        oracle = outcome_oracle(labels, [bool(known) for known in right], lengths)
        found["outcome oracle"] = oracle.f1
    return found


def _step_figures(scored: Sequence[Scored], threshold: float) -> StepFigures:
    exact: dict[int, tuple[list[float], list[bool]]] = defaultdict(lambda: ([], []))
    positions: dict[int, tuple[list[float], list[bool]]] = defaultdict(lambda: ([], []))
    everything: tuple[list[float], list[bool]] = ([], [])
    within: list[float] = []
    for one in scored:
        own: tuple[list[float], list[bool]] = ([], [])
        for index, (score, label) in enumerate(zip(one.scores, one.row.labels, strict=True)):
            if score is None or label is None:
                continue
            for scores, rights in (
                own, everything, exact[index], positions[min(index, LAST_POSITION)]
            ):  # fmt: skip
                scores.append(score)
                rights.append(label >= RIGHT_FROM)
        if (area := auroc(*own)) is not None:
            within.append(area)
    scores, rights = everything
    same_position, comparable = _same_position(exact.values())
    return StepFigures(
        right=sum(rights),
        wrong=len(rights) - sum(rights),
        auroc=auroc(scores, rights),
        within_auroc=sum(within) / len(within) if within else None,
        mixed=len(within),
        same_position_auroc=same_position,
        comparable=comparable,
        by_position=tuple(
            (index + 1, len(rights), auroc(scores, rights))
            for index, (scores, rights) in sorted(positions.items())
        ),
        average_precision=average_precision(scores, rights) if rights else None,
        balanced_accuracy=_balanced(scores, rights, threshold),
        calibration=calibration(scores, rights) if rights else None,
    )


def _same_position(
    positions: Iterable[tuple[Sequence[float], Sequence[bool]]],
) -> tuple[float | None, int]:
    """AUROC over pairs at one position, and the steps at positions that have both kinds."""
    won, pairs, steps = 0.0, 0, 0
    for scores, rights in positions:
        area = auroc(scores, rights)
        if area is not None:
            own = sum(rights) * (len(rights) - sum(rights))
            won, pairs, steps = won + area * own, pairs + own, steps + len(rights)
    return (won / pairs if pairs else None), steps


RIGHT_FROM = 0.5
LAST_POSITION = 9


def _balanced(scores: Sequence[float], rights: Sequence[bool], threshold: float) -> float | None:
    passed: dict[bool, list[bool]] = {True: [], False: []}
    for score, right in zip(scores, rights, strict=True):
        passed[right].append(score >= threshold)
    if not passed[True] or not passed[False]:
        return None
    hits = sum(passed[True]) / len(passed[True])
    return (hits + 1 - sum(passed[False]) / len(passed[False])) / 2
