"""How well a scorer tells right solutions from wrong ones: ``stepmark rm eval``.

A solution without a score, for it is longer than the scorer reads, ranks below all others, is never
called right and has no part in calibration. Intervals are 95 %; solutions of one problem are alike,
so it is problems that are drawn again, or that count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepmark.errors import DataError, UnknownNameError
from stepmark.protocols import StepScorer
from stepmark.statistics import best_at_k, mean_at_k, pass_at_k
from stepmark.types import Problem, StepItem

from .aggregation import AGGREGATIONS, aggregate, rank_of
from .eval_report import Figure
from .formats import problem_id
from .marking import answers
from .metrics import auroc, calibration
from .outcome_data import Solution
from .scorers import check_scorer_columns, scores_of_solution
from .splits import overlap, read_problems
from .steps import step_texts

__all__ = ["BestOf", "OutcomeReport", "Rated", "examine_outcomes", "figures_of", "rate"]

AT_ONCE = 64
DRAWS = 1000
"""Draws of problems behind an interval."""
SEED = 0


class Rated(NamedTuple):
    """A solution and what a scorer made of it."""

    problem: str
    """Its id."""
    group: str
    """Solutions that are compared: of one problem, or of one preference."""
    is_right: bool
    score: float | None
    """In [0, 1]; None where the scorer gave none."""
    rank: float | None
    """What it is ordered by; see `stepmark.prm.aggregation.rank_of`."""
    failed: bool = False
    """Whether there is none because the scorer failed."""


@dataclass(frozen=True, slots=True)
class BestOf:
    """The share of problems that are right when of k solutions the best scored one is taken."""

    k: int
    problems: int
    """Problems with k solutions or more."""
    best: Figure
    mean: float
    """Without a scorer: one solution, at random."""
    bound: float
    """With a scorer that is never wrong."""


@dataclass(frozen=True, slots=True)
class OutcomeReport:
    """What was found of one scorer on one file."""

    data: str
    label: str
    scorer: str
    aggregation: str
    solutions: int
    problems: int
    right: int
    unscored: int
    failed: int
    trained_on: int | None
    """Solutions to problems that the model was trained on; None where that is not known."""
    figures: tuple[Figure, ...]
    best_of: tuple[BestOf, ...]
    unseen: tuple[Figure, ...] = ()
    """The figures without the problems that it was trained on, where there are such."""

    def figure(self, name: str) -> Figure:
        """One of the figures."""
        return next(one for one in self.figures if one.name == name)

    def to_row(self) -> dict[str, Any]:
        """The numbers for machines."""
        return asdict(self)


def rate(
    scorer: StepScorer,
    solutions: Sequence[Solution],
    how: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Rated]:
    """Every solution with its score, in order.

    Args:
        scorer: of whole solutions, or of steps; it divides a solution that is one text.
        solutions: from `stepmark.prm.outcome_data.solutions_of`.
        how: the aggregation; see `stepmark.prm.AGGREGATIONS`.
        on_progress: told what is done, and of how many.

    Raises:
        DataError: the scorer gives no score in [0, 1], or None, per step.
        VerifierError: the scorer raised.
    """
    found = list[Rated]()
    for start in range(0, len(solutions), AT_ONCE):
        some = solutions[start : start + AT_ONCE]
        for one, said in zip(some, answers(scorer, [_item(scorer, s) for s in some]), strict=True):
            scores = scores_of_solution(scorer, said.scores)
            id = problem_id(one.problem)
            group = id if one.preference is None else f"preference {one.preference}"
            score, rank = aggregate(scores, how), rank_of(scores, how)
            found.append(Rated(id, group, one.is_right, score, rank, said.failed))
        if on_progress:
            on_progress(len(found), len(solutions))
    return found


def _item(scorer: StepScorer, one: Solution) -> StepItem:
    steps = one.steps
    if len(steps) == 1:
        steps = step_texts(steps[0], scorer.segment(steps[0]))
    return StepItem(Problem(problem_id(one.problem), one.problem, None), steps)


def examine_outcomes(
    scorer: StepScorer,
    solutions: Sequence[Solution],
    *,
    data: str,
    label: str,
    aggregation: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> OutcomeReport:
    """A scorer on solutions that end right or wrong, or on preferences.

    Args:
        scorer: of whole solutions, or of steps.
        solutions: from `stepmark.prm.outcome_data.solutions_of`.
        data: what tables call the file.
        label: what they call the scorer.
        aggregation: of the scores of steps; None: what the scorer says of itself.
        on_progress: told what is done, and of how many.

    Raises:
        DataError: there are no solutions, or all are right, or all wrong, or none has a score.
        ConfigError: the scorer needs a column; solutions have none.
        UnknownNameError: there is no such aggregation.
    """
    how = aggregation or str(getattr(scorer, "aggregation", "min"))
    _check(scorer, solutions, data, how)
    rated = rate(scorer, solutions, how, on_progress)
    if all(one.score is None and not one.failed for one in rated):
        raise DataError(
            f"{label} gives none of the {len(rated):,} solutions of {data} a score: all are longer "
            "than it reads. Give shorter ones, or a model with a larger encoding.max_tokens."
        )
    trained_on, unseen = _unseen(scorer, solutions, rated)
    return OutcomeReport(
        data=data,
        label=label,
        scorer=scorer.key,
        aggregation=how,
        solutions=len(rated),
        problems=len({one.problem for one in rated}),
        right=sum(one.is_right for one in rated),
        unscored=sum(one.score is None and not one.failed for one in rated),
        failed=sum(one.failed for one in rated),
        trained_on=trained_on,
        figures=figures_of(rated),
        best_of=_best_of([] if any(s.preference is not None for s in solutions) else rated),
        unseen=unseen,
    )


def _check(scorer: StepScorer, solutions: Sequence[Solution], data: str, how: str) -> None:
    check_scorer_columns(scorer, (), data)
    right = sum(one.is_right for one in solutions)
    if not 0 < right < len(solutions):
        raise DataError(
            f"{data} has {right:,} right solutions of {len(solutions):,}; to tell them apart there "
            "must be right and wrong ones. Give a file with both."
        )
    if how not in AGGREGATIONS:
        raise UnknownNameError.of("aggregation", how, AGGREGATIONS)


def _unseen(
    scorer: StepScorer, solutions: Sequence[Solution], rated: Sequence[Rated]
) -> tuple[int | None, tuple[Figure, ...]]:
    """Solutions to problems that the model was trained on, and the figures without them."""
    place = getattr(scorer, "path", None)
    trained = read_problems(place) if isinstance(place, Path) else None
    if trained is None:
        return None, ()
    shared = overlap(trained, [one.problem for one in solutions])
    rest = [one for one in rated if one.problem not in shared.shared]
    is_told = bool(shared.rows) and len({one.is_right for one in rest}) == 2
    return shared.rows, figures_of(rest) if is_told else ()


def figures_of(rated: Sequence[Rated]) -> tuple[Figure, ...]:
    """AUROC, order within problems, accuracy at 0.5 with its floor, and calibration."""
    ranks = np.array([-math.inf if one.rank is None else one.rank for one in rated])
    right = np.array([one.is_right for one in rated])
    called = np.array([one.score is not None and one.score >= HALF for one in rated])
    known = [(one.score, one.is_right) for one in rated if one.score is not None]
    scores, rights = [score for score, _ in known], [is_right for _, is_right in known]
    chances = calibration(scores, rights) if known else None
    groups = [one.problem for one in rated]
    n = len(rated)
    return (
        _drawn("auroc", groups, lambda at: auroc(ranks[at].tolist(), right[at].tolist())),
        _ordered(rated),
        _drawn("accuracy", groups, lambda at: float((called == right)[at].mean())),
        Figure("larger_class", float(max(right.mean(), 1 - right.mean())), n),
        Figure("expected_calibration_error", chances and chances.expected_error, len(known)),
        Figure("brier", chances and chances.brier, len(known)),
    )


HALF = 0.5


def _drawn(
    name: str, groups: Sequence[str], measure: Callable[[np.ndarray], float | None]
) -> Figure:
    """A figure with the percentile interval of problems that are drawn again."""
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    clusters = [np.array(one) for one in places.values()]
    draw, count = np.random.default_rng(SEED), len(clusters)
    found = [
        measure(np.concatenate([clusters[at] for at in draw.integers(count, size=count)]))
        for _ in range(DRAWS)
    ]
    known = [value for value in found if value is not None]
    value = measure(np.arange(len(groups)))
    if value is None or not known or count < 2:
        return Figure(name, value, len(groups))
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    return Figure(name, value, len(groups), low, high, float(np.std(known)))


def _ordered(rated: Sequence[Rated]) -> Figure:
    """Share of pairs, right and wrong, in order; the mean over problems that have both."""
    groups: dict[tuple[str, str], list[Rated]] = {}
    for one in rated:
        groups.setdefault((one.problem, one.group), []).append(one)
    shares: dict[str, list[float]] = {}
    for (problem, _), some in groups.items():
        ranks = [-math.inf if one.rank is None else one.rank for one in some]
        if (share := auroc(ranks, [one.is_right for one in some])) is not None:
            shares.setdefault(problem, []).append(share)
    if not shares:
        return Figure("pair_accuracy", None, 0)
    found = mean_at_k(list(shares.values()))
    low, high = found.interval
    return Figure("pair_accuracy", found.mean, found.problems, low, high, found.se)


def _best_of(rated: Sequence[Rated]) -> tuple[BestOf, ...]:
    """Of 2, 4, 8, ... solutions, while half of the problems have as many."""
    problems: dict[str, list[Rated]] = {}
    for one in rated:
        problems.setdefault(one.problem, []).append(one)
    found, k = list[BestOf](), 2
    while 2 * sum(len(some) >= k for some in problems.values()) >= max(1, len(problems)):
        rows = [some for some in problems.values() if len(some) >= k]
        right = [[float(one.is_right) for one in some] for some in rows]
        ranks = [[one.rank for one in some] for some in rows]
        shares = [best_at_k(*pair, k) for pair in zip(right, ranks, strict=True)]
        best = mean_at_k([[min(1.0, share)] for share in shares])
        low, high = best.interval
        bound = [pass_at_k(len(some), int(sum(some)), k) for some in right]
        figure = Figure(f"best_of_{k}", best.mean, len(rows), low, high, best.se)
        mean = mean_at_k(right).mean
        found.append(BestOf(k, len(rows), figure, mean, math.fsum(bound) / len(bound)))
        k *= 2
    return tuple(found)
