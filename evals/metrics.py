"""Metrics over the several completions of a problem, by name, from what a run has stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stepmark.errors import ConfigError, RunError, did_you_mean
from stepmark.prm import AGGREGATIONS
from stepmark.prm.aggregation import rank_of
from stepmark.statistics import best_at_k, mean_at_k, pass_at_k
from stepmark.store import Key, RunFolder

from .compare import graded_of
from .measured import Measured

__all__ = ["Metric", "measure", "parse_metrics"]

KINDS = ("mean", "pass", "bon")
_NAME = re.compile(r"(?P<kind>[a-z]+)@(?P<k>\d+)(?::(?P<scorer>.+):(?P<how>[a-z_]+))?")


class Metric(NamedTuple):
    """What to work out: ``mean@8``, ``pass@8`` or ``bon@8:prm:min``."""

    kind: str
    k: int
    scorer: str = ""
    """Of best of k: a scorer's key, or its name before the ``@``."""
    how: str = ""
    """Of best of k: how the scores of the steps become one; see `stepmark.prm.AGGREGATIONS`."""

    def __str__(self) -> str:
        chosen = f":{self.scorer}:{self.how}" if self.scorer else ""
        return f"{self.kind}@{self.k}{chosen}"


def parse_metrics(text: str) -> tuple[Metric, ...]:
    """The metrics in a list with commas.

    Raises:
        ConfigError: one of them is not known, or names no scorer where it needs one.

    >>> [str(metric) for metric in parse_metrics("mean@1, pass@8, bon@8:prm:min")]
    ['mean@1', 'pass@8', 'bon@8:prm:min']
    """
    return tuple(_metric(word.strip()) for word in text.split(",") if word.strip())


def _metric(word: str) -> Metric:
    known = "Known are mean@K, pass@K and bon@K:SCORER:AGGREGATION, such as bon@8:prm:min."
    found = _NAME.fullmatch(word)
    if not found or found["kind"] not in KINDS or int(found["k"]) < 1:
        raise ConfigError(f"The metric {word!r} is not known. {known}")
    kind, k, scorer, how = found["kind"], int(found["k"]), found["scorer"] or "", found["how"] or ""
    if (kind == "bon") != bool(scorer):
        raise ConfigError(
            f"The metric {word!r}: best of K is chosen by a scorer, and no other metric is. {known}"
        )
    if how and how not in AGGREGATIONS:
        hint = did_you_mean(how, AGGREGATIONS)
        raise ConfigError(
            f"The metric {word!r} has the aggregation {how!r}. {hint}{' ' if hint else ''}"
            f"Known: {', '.join(AGGREGATIONS)}."
        )
    return Metric(kind, k, scorer, how)


def measure(run: Path, metrics: Sequence[Metric]) -> list[Measured]:
    """The metrics of a run, exact expectations over all subsets of K of its completions.

    A completion is right when it has full marks of the run's verifier.

    Raises:
        RunError: the run is not finished, or has no scores of that scorer on some completions.
        ConfigError: K is larger than the number of completions of a problem.
    """
    graded = graded_of(run)
    right: dict[str, list[float]] = {}
    keys: dict[str, list[Key]] = {}
    for sample, verdict in graded:
        right.setdefault(sample.id, []).append(float(verdict.correct is True))
        keys.setdefault(sample.id, []).append(sample.key)
    return [_one(run, metric, right, keys) for metric in metrics]


def _one(
    run: Path,
    metric: Metric,
    right: Mapping[str, Sequence[float]],
    keys: Mapping[str, Sequence[Key]],
) -> Measured:
    least = min(right, key=lambda id: len(right[id]))
    if len(right[least]) < metric.k:
        raise ConfigError(
            f"{metric} needs {metric.k} completions of each problem, and {str(run)!r} has "
            f"{len(right[least])} of {least!r}. Evaluate with --n {metric.k}, or ask for fewer."
        )
    scorer, unscored = None, 0
    if metric.kind == "bon":
        scorer, ranks = _ranks(run, metric, [key for row in keys.values() for key in row])
        unscored = sum(rank is None for rank in ranks.values())
        values = [
            best_at_k(row, [ranks[key] for key in keys[id]], metric.k) for id, row in right.items()
        ]
    elif metric.kind == "pass":
        values = [pass_at_k(len(row), int(sum(row)), metric.k) for row in right.values()]
    else:
        values = [sum(row) / len(row) for row in right.values()]
    found = mean_at_k([[min(1.0, value)] for value in values])
    return Measured(
        str(metric), found.mean, found.interval.low, found.interval.high,
        found.se if len(values) > 1 else None, len(values), metric.k, scorer,
        metric.how or None, unscored,
    )  # fmt: skip


def _ranks(run: Path, metric: Metric, wanted: Sequence[Key]) -> tuple[str, dict[Key, float | None]]:
    """The scorer's key, and what the aggregated score of each completion is ordered by."""
    store = RunFolder.open(run).samples
    known = store.score_keys()
    fits = [key for key in known if metric.scorer in (key, key.partition("@")[0])]
    if len(fits) != 1:
        what = "scores of several scorers" if fits else "no scores"
        raise RunError(
            f"{str(run)!r} has {what} named {metric.scorer!r}; there are: "
            f"{', '.join(known) or 'none'}. Name one of those keys, or make the scores:\n"
            f"    stepmark prm score {run} --scorer CHECKPOINT"
        )
    scores = store.scores(fits[0])
    if lacking := sum(key not in scores for key in wanted):
        raise RunError(
            f"{str(run)!r} has no scores of {fits[0]!r} on {lacking} of {len(wanted)} completions. "
            f"Make the missing ones:\n    stepmark prm score {run} --scorer CHECKPOINT"
        )
    return fits[0], {key: rank_of(scores[key].scores, metric.how) for key in wanted}
