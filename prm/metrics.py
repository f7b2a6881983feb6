"""How good step scores are: first errors found, steps told apart, calibration; with intervals.

A *prediction* is the index of the first step called wrong, from 0, or -1 for "no error". Labels of
first errors read the same way. Steps without a score (beyond the scorer's limit) are never called
wrong; a solution without a single score has the prediction `UNTOLD`, which is never right. Steps
without a label are left out where a metric is over steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepmark.errors import ConfigError
from stepmark.statistics import Interval, wilson

__all__ = [
    "UNTOLD",
    "Bin",
    "Calibration",
    "FirstErrors",
    "auroc",
    "average_precision",
    "best_threshold",
    "calibration",
    "f1_interval",
    "first_below",
    "first_errors",
    "processbench_f1",
    "rank_correlation",
    "share_of_last_minima",
]


UNTOLD = -2
"""The prediction for a solution of which no step has a score: neither a step nor "no error"."""


def first_below(scores: Sequence[float | None], threshold: float) -> int:
    """Index of the first step whose score is below the threshold, or -1; `UNTOLD` without scores.

    >>> [first_below(scores, 0.5) for scores in ([0.9, 0.3, 0.1], [0.9, None], [None, None])]
    [1, -1, -2]
    """
    for index, score in enumerate(scores):
        if score is not None and score < threshold:
            return index
    return UNTOLD if scores and all(score is None for score in scores) else -1


@dataclass(frozen=True, slots=True)
class FirstErrors:
    """ProcessBench's figures of a set of predictions (arXiv:2412.06559, section 3)."""

    f1: float
    """Harmonic mean of the two accuracies, in [0, 1]."""
    error_accuracy: float
    """Of solutions with an error: share where exactly its first step was named."""
    correct_accuracy: float
    """Of solutions without: share predicted -1."""
    errors: int
    corrects: int
    standard_error: float
    """Of ``f1``, by the delta method; the two accuracies are independent."""
    near_accuracy: float
    """As ``error_accuracy``, but one step to either side counts as well."""


def processbench_f1(error_accuracy: float, correct_accuracy: float) -> float:
    r"""The harmonic mean that ProcessBench calls F1; it is no F1 of precision and recall.

    .. math:: F_1 = 2 a_{err} a_{cor} / (a_{err} + a_{cor})

    >>> round(processbench_f1(0.5, 0.9), 3), processbench_f1(0.0, 0.0)
    (0.643, 0.0)
    """
    total = error_accuracy + correct_accuracy
    return 2 * error_accuracy * correct_accuracy / total if total else 0.0


def first_errors(predictions: Sequence[int], labels: Sequence[int]) -> FirstErrors:
    """ProcessBench's figures; a right "there is an error" at another step counts as wrong.

    `UNTOLD` counts as wrong in both accuracies: leaving such solutions out would let a scorer
    choose its rows.

    Raises:
        ConfigError: the lengths differ, or one of the two kinds of solutions is missing.
    """
    if len(predictions) != len(labels):
        raise ConfigError(
            f"{len(predictions)} predictions for {len(labels)} labels; there must be one each."
        )
    with_error = [(said, is_) for said, is_ in zip(predictions, labels, strict=True) if is_ >= 0]
    without = [said for said, is_ in zip(predictions, labels, strict=True) if is_ < 0]
    if not with_error or not without:
        raise ConfigError(
            f"F1 of first errors needs solutions with an error and without; there are "
            f"{len(with_error)} and {len(without)}. Evaluate more rows."
        )
    hit = sum(said == is_ for said, is_ in with_error) / len(with_error)
    near = sum(said >= 0 and abs(said - is_) <= 1 for said, is_ in with_error) / len(with_error)
    clear = sum(said == -1 for said in without) / len(without)
    return FirstErrors(
        processbench_f1(hit, clear),
        hit,
        clear,
        len(with_error),
        len(without),
        _f1_error(hit, clear, len(with_error), len(without)),
        near,
    )


def _slopes(hit: float, clear: float) -> tuple[float, float]:
    """dF/da = 2 b^2 / (a + b)^2, and the same the other way round; 0 where F1 has none."""
    total = hit + clear
    return (2 * (clear / total) ** 2, 2 * (hit / total) ** 2) if total else (0.0, 0.0)


def _f1_error(hit: float, clear: float, errors: int, corrects: int) -> float:
    """Delta method."""
    of_hit, of_clear = _slopes(hit, clear)
    return math.sqrt(
        of_hit**2 * hit * (1 - hit) / errors + of_clear**2 * clear * (1 - clear) / corrects
    )


def f1_interval(found: FirstErrors) -> Interval:
    r"""95 % interval of F1 from Wilson's intervals of its two accuracies; sensible at 0 and at 1.

    .. math:: F_1 - \sqrt{(s_{err} (a_{err} - l_{err}))^2 + (s_{cor} (a_{cor} - l_{cor}))^2}

    and likewise upwards, with the slopes s of F1 and the lower bounds l; never beyond what F1 would
    be at both bounds.

    >>> low, high = f1_interval(first_errors([0, 1, -1, -1], [0, 0, -1, -1]))
    >>> round(low, 2), round(high, 2)
    (0.28, 0.95)
    """
    hit, clear = found.error_accuracy, found.correct_accuracy
    bounds = [
        wilson(round(share * n), n) for share, n in ((hit, found.errors), (clear, found.corrects))
    ]
    slopes = _slopes(hit, clear)

    def reach(side: int) -> float:
        steps = (bound[side] - at for bound, at in zip(bounds, (hit, clear), strict=True))
        return math.hypot(*(slope * step for slope, step in zip(slopes, steps, strict=True)))

    least, most = (processbench_f1(*ends) for ends in zip(*bounds, strict=True))
    low, high = max(least, found.f1 - reach(0)), min(most, found.f1 + reach(1))
    return Interval(low, high) if hit + clear else Interval(0.0, most)


def best_threshold(rows: Sequence[Sequence[float | None]], labels: Sequence[int]) -> float:
    """The threshold with the highest F1 on these rows; fit it on a development part only.

    Candidates lie half-way between neighbouring least scores up to each step; of equal ones, the
    one nearest to 0.5 is taken.

    Raises:
        ConfigError: as `first_errors`.
    """
    known = sorted({score for row in rows for score in row if score is not None})
    middles = [(low + high) / 2 for low, high in pairwise(known)]
    if len(middles) > MOST_THRESHOLDS:
        places = np.linspace(0, len(middles) - 1, MOST_THRESHOLDS).round().astype(int)
        middles = [middles[place] for place in places]
    candidates = sorted({0.5, *middles}, key=lambda value: (abs(value - 0.5), value))

    def reached(threshold: float) -> float:
        return first_errors([first_below(row, threshold) for row in rows], labels).f1

    return max(candidates, key=reached)


MOST_THRESHOLDS = 512
"""Candidates that are tried; evenly spread over the scores' ranks where there are more."""


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Chance that a right step scores higher than a wrong one, ties half; None without both.

    >>> auroc([0.9, 0.8, 0.1], [True, False, False])
    1.0
    """
    values, right = np.asarray(scores, float), np.asarray(labels, bool)
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        return None
    from scipy.stats import rankdata

    ranks = rankdata(values)
    above = ranks[right].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def average_precision(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Area under precision over recall of finding *wrong* steps by low scores; None without any.

    Steps of one score are taken together.

    >>> average_precision([0.1, 0.9, 0.8], [False, True, True])
    1.0
    """
    wrong = ~np.asarray(labels, bool)
    if not wrong.any():
        return None
    values = np.asarray(scores, float)
    order = np.argsort(values, kind="stable")
    ordered, found = values[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.append(np.diff(ordered) > 0, True))
    precision = found[ends] / (ends + 1)
    recall_gain = np.diff(np.concatenate([[0], found[ends]])) / wrong.sum()
    return float((precision * recall_gain).sum())


class Bin(NamedTuple):
    """Steps of neighbouring scores."""

    low: float
    high: float
    steps: int
    mean_score: float
    share_right: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Whether scores are chances."""

    expected_error: float
    """Mean distance of score and share right over the bins, weighted by their steps (ECE)."""
    brier: float
    """Mean squared difference of score and label."""
    bins: tuple[Bin, ...]


def _cuts(ordered: np.ndarray, bins: int) -> list[int]:
    """Where rising values are cut into about equal parts; equal values stay together."""
    wanted = [round(len(ordered) * part / bins) for part in range(1, bins)]
    ends = {int(np.searchsorted(ordered, ordered[max(cut - 1, 0)], "right")) for cut in wanted}
    return sorted(ends - {0, len(ordered)})


def calibration(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> Calibration:
    """Scores against shares of right steps, in bins of about equal counts.

    Raises:
        ConfigError: there is no step.
    """
    if not scores:
        raise ConfigError("There is no labelled step with a score, so nothing can be calibrated.")
    values, right = np.asarray(scores, float), np.asarray(labels, float)
    order = np.argsort(values, kind="stable")
    made = [
        Bin(
            float(values[part].min()),
            float(values[part].max()),
            len(part),
            float(values[part].mean()),
            float(right[part].mean()),
        )
        for part in np.split(order, _cuts(values[order], bins))
    ]
    distance = sum(one.steps * abs(one.mean_score - one.share_right) for one in made)
    return Calibration(distance / len(values), float(((values - right) ** 2).mean()), tuple(made))


def share_of_last_minima(rows: Sequence[Sequence[float | None]]) -> float | None:
    """Of solutions with two or more scored steps: share whose least score is at the last of them.

    High shares are the mark of a process model that learnt the outcome only. Ties count for the
    earlier step. None without such a solution.
    """
    known = [[score for score in row if score is not None] for row in rows]
    long = [row for row in known if len(row) > 1]
    if not long:
        return None
    return sum(row.index(min(row)) == len(row) - 1 for row in long) / len(long)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; None where one of them does not vary."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(first, second)[0])  # type: ignore[arg-type]
