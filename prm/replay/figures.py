"""How a reward model does on one set of held-out rows, and whether another does better.

The figure of a set is ProcessBench's F1 of first errors where rows tell their first error; where
they do not (outcomes label the last step alone), it is the same mean of the shares of wrong and of
right *steps* that are called so. Comparisons resample problems, not rows: solutions of one problem
are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from stepmark.prm.data import WRONG_BELOW, LabelRule, StepRow, encode_rows
from stepmark.prm.formats.rows import problem_id
from stepmark.prm.metrics import first_below, processbench_f1
from stepmark.types import LabelledSteps

if TYPE_CHECKING:
    from stepmark.prm.encoding import StepEncoder
    from stepmark.prm.model import StepModel

__all__ = ["Change", "Figures", "HeldOut", "Read", "change", "held_out", "read"]

Metric = Literal["f1", "step_f1"]


@dataclass(frozen=True, slots=True)
class Figures:
    """One reward model on one set."""

    rows: int
    problems: int
    metric: Metric | None
    """None where the set cannot tell: rows with an error and rows without are both needed."""
    value: float | None
    """Of the metric, in [0, 1]."""
    wrong: float | None
    """Share of errors that are found."""
    right: float | None
    """Share of right ones that are left alone."""

    def to_row(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


class HeldOut(NamedTuple):
    """A set of rows as tokens."""

    rows: list[StepRow]
    problems: list[str]
    """Id of the problem of each row."""
    dropped: Mapping[str, int]
    """Rows that are not examined, by reason."""


class Read(NamedTuple):
    """What a reward model says of a set."""

    figures: Figures
    counts: np.ndarray
    """By problem: errors found, errors, right ones left alone, right ones."""
    scores: list[tuple[float, ...]]


class Change(NamedTuple):
    """How a figure changed from one reward model to the next, on the same rows."""

    before: float
    after: float
    low: float
    """Bounds of the paired interval of the difference."""
    high: float

    @property
    def gain(self) -> float:
        """After less before."""
        return self.after - self.before


def held_out(rows: Sequence[LabelledSteps], encoder: StepEncoder, rule: LabelRule) -> HeldOut:
    """Rows as tokens; those that lose all labels are counted."""
    found, problems, dropped = list[StepRow](), list[str](), dict[str, int]()
    for row in rows:
        made, counts = encode_rows([row], encoder, rule)
        found += made
        problems += [problem_id(row.problem.text)] * len(made)
        for reason, number in counts.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + number
    return HeldOut(found, problems, dropped)


def read(model: StepModel, data: HeldOut, threshold: float, budget: int) -> Read:
    """The figures of a reward model on a set.

    Args:
        model: in eval mode or not; its weights stay as they are.
        data: from `held_out`.
        threshold: below it a step is called wrong.
        budget: tokens of one forward pass.
    """
    scores = model.step_probabilities([row.encoded for row in data.rows], budget)
    metric = _metric(data.rows)
    per_row = [
        _hits(row, said, threshold, metric) for row, said in zip(data.rows, scores, strict=True)
    ]
    places = {problem: n for n, problem in enumerate(sorted(set(data.problems)))}
    counts = np.zeros((len(places), 4))
    for problem, hits in zip(data.problems, per_row, strict=True):
        counts[places[problem]] += hits
    found, errors, clear, rights = counts.sum(axis=0)
    known = metric is not None
    wrong, right = (found / errors, clear / rights) if known else (None, None)
    value = processbench_f1(wrong, right) if wrong is not None and right is not None else None
    figures = Figures(
        len(data.rows),
        len(places),
        metric,
        None if value is None else float(value),
        None if wrong is None else float(wrong),
        None if right is None else float(right),
    )
    return Read(figures, counts, scores)


def change(
    before: Read, after: Read, *, level: float, resamples: int, seed: int = 0
) -> Change | None:
    """How the figure of a set changed, with the interval of a paired bootstrap over problems.

    None where the set cannot tell.

    Args:
        before: of the earlier reward model.
        after: of the later one, on the same rows.
        level: of the interval.
        resamples: draws of problems, with replacement.
        seed: of the draws.
    """
    one, two = before.figures.value, after.figures.value
    if one is None or two is None:
        return None
    problems = len(before.counts)
    chance = np.random.default_rng(seed)
    weights = chance.multinomial(problems, np.full(problems, 1 / problems), size=resamples)
    differences = _f1(weights @ after.counts) - _f1(weights @ before.counts)
    tail = (1 - level) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return Change(one, two, float(low), float(high))


def _f1(sums: np.ndarray) -> np.ndarray:
    """F1 of each draw; one without errors, or without right ones, has 0 for their share."""
    found, errors, clear, rights = sums.T
    wrong = np.divide(found, errors, out=np.zeros_like(found), where=errors > 0)
    right = np.divide(clear, rights, out=np.zeros_like(clear), where=rights > 0)
    total = wrong + right
    return np.divide(2 * wrong * right, total, out=np.zeros_like(total), where=total > 0)


def _metric(rows: Sequence[StepRow]) -> Metric | None:
    firsts = [row.first_error for row in rows if row.first_error is not None]
    if any(first >= 0 for first in firsts) and any(first < 0 for first in firsts):
        return "f1"
    labels = [label for row in rows for label in row.labels]
    both = (
        any(label < WRONG_BELOW for label in labels),
        any(label >= WRONG_BELOW for label in labels),
    )
    return "step_f1" if all(both) else None


def _hits(
    row: StepRow, scores: Sequence[float], threshold: float, metric: Metric | None
) -> tuple[int, int, int, int]:
    """Errors found, errors, right ones left alone, right ones: whole rows, or steps."""
    if metric == "f1":
        first = row.first_error
        if first is None:
            return 0, 0, 0, 0
        hit = first_below(scores, threshold) == first
        return (int(hit), 1, 0, 0) if first >= 0 else (0, 0, int(hit), 1)
    wrong = [
        score < threshold for score, y in zip(scores, row.labels, strict=True) if y < WRONG_BELOW
    ]
    right = [
        score >= threshold for score, y in zip(scores, row.labels, strict=True) if y >= WRONG_BELOW
    ]
    return sum(wrong), len(wrong), sum(right), len(right)
