"""Metrics over the several completions of a problem, by name, from what a run has stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stepmark.errors import ConfigError, did_you_mean
from stepmark.prm import AGGREGATIONS
from stepmark.protocols import OutcomeVerifier
from stepmark.statistics import accuracy_curve

from .drawn import DrawnRun
from .measured import Measured

__all__ = ["Metric", "measure", "parse_metrics"]

METHODS = {
    "mean": "mean",
    "pass": "pass",
    "bon": "best",
    "maj": "majority",
    "wmaj": "weighted",
}
"""Name of each metric -> what is done with k completions, see `stepmark.statistics`."""
CHOSEN = ("bon", "wmaj")
"""Metrics that need a scorer."""
VOTED = ("maj", "wmaj")
"""Metrics that need to know which results are equal."""
_NAME = re.compile(r"(?P<kind>[a-z]+)@(?P<k>\d+)(?::(?P<scorer>.+):(?P<how>[a-z_]+))?")


class Metric(NamedTuple):
    """What to work out, such as ``mean@8``, ``maj@8``, ``bon@8:prm:min`` or ``wmaj@8:prm:min``."""

    kind: str
    k: int
    scorer: str = ""
    """Of best of k and weighted votes: a scorer's key, or its name before the ``@``."""
    how: str = ""
    """Of the same: how the scores of the steps become one; see `stepmark.prm.AGGREGATIONS`."""

    def __str__(self) -> str:
        chosen = f":{self.scorer}:{self.how}" if self.scorer else ""
        return f"{self.kind}@{self.k}{chosen}"


def parse_metrics(text: str) -> tuple[Metric, ...]:
    """The metrics in a list with commas.

    Raises:
        ConfigError: one of them is not known, or names no scorer where it needs one.

    >>> [str(metric) for metric in parse_metrics("mean@1, pass@8, maj@8, bon@8:prm:min")]
    ['mean@1', 'pass@8', 'maj@8', 'bon@8:prm:min']
    """
    return tuple(_metric(word.strip()) for word in text.split(",") if word.strip())


def _metric(word: str) -> Metric:
    known = (
        "Known are mean@K, pass@K and bon@K:SCORER:AGGREGATION, such as bon@8:prm:min, and the "
        "votes maj@K and wmaj@K:SCORER:AGGREGATION."
    )
    found = _NAME.fullmatch(word)
    if not found or found["kind"] not in METHODS or int(found["k"]) < 1:
        raise ConfigError(f"The metric {word!r} is not known. {known}")
    kind, k, scorer, how = found["kind"], int(found["k"]), found["scorer"] or "", found["how"] or ""
    if (kind in CHOSEN) != bool(scorer):
        raise ConfigError(
            f"The metric {word!r}: best of K is chosen by a scorer and wmaj weighed by one; "
            f"no other metric has a scorer. {known}"
        )
    if how and how not in AGGREGATIONS:
        hint = did_you_mean(how, AGGREGATIONS)
        raise ConfigError(
            f"The metric {word!r} has the aggregation {how!r}. {hint}{' ' if hint else ''}"
            f"Known: {', '.join(AGGREGATIONS)}."
        )
    return Metric(kind, k, scorer, how)


def measure(
    run: Path, metrics: Sequence[Metric], verifier: OutcomeVerifier | None = None
) -> list[Measured]:
    """The metrics of a run, expectations over all subsets of K of its completions.

    They are exact but for weighted votes (and votes of hundreds) where there are too many subsets;
    then `Measured.draws` says how many were drawn. A completion is right when it has full marks of
    the run's verifier.

    Args:
        run: the run folder.
        metrics: see `parse_metrics`.
        verifier: whose equality says which results are one vote; by default the run's own, or
            `math` where that has settings.

    Raises:
        RunError: the run is not finished, or has no scores of that scorer on some completions.
        ConfigError: K is larger than the number of completions of a problem.
    """
    drawn = DrawnRun(run, verifier)
    return [_one(drawn, metric) for metric in metrics]


def _one(run: DrawnRun, metric: Metric) -> Measured:
    least, count = run.least
    if count < metric.k:
        raise ConfigError(
            f"{metric} needs {metric.k} completions of each problem, and {str(run.run)!r} has "
            f"{count} of {least!r}. Evaluate with --n {metric.k}, or ask for fewer."
        )
    choice = run.choice(metric.scorer, metric.how) if metric.scorer else None
    is_vote = metric.kind in VOTED
    problems = run.drawn(choice, votes=is_vote)
    [point] = accuracy_curve(problems, METHODS[metric.kind], [metric.k])
    return Measured(
        str(metric), point.mean, point.interval.low, point.interval.high, point.se, len(problems),
        metric.k, choice and choice.scorer, metric.how or None, choice.unscored if choice else 0,
        run.verifier.key if is_vote else None, point.draws,
    )  # fmt: skip
