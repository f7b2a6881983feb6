"""Two runs on the same problems: the difference, its interval, and where they part."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepmark.errors import RunError
from stepmark.report.numbers import number, percent, points
from stepmark.statistics import Interval, Paired, paired_means, paired_shares
from stepmark.store import RunFolder, Sample
from stepmark.types import Verdict

from .result import EvalResult
from .table import read_result

__all__ = ["Comparison", "compare", "graded_of"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first run minus the second, paired by problem."""

    first: str
    second: str
    n: int
    first_accuracy: float
    second_accuracy: float
    difference: float
    interval: Interval
    p: float
    test: str
    only_first: tuple[str, ...]
    """Ids of the problems on which the first run is better."""
    only_second: tuple[str, ...]
    """Ids of the problems on which the second run is better."""

    def to_row(self) -> dict[str, Any]:
        """All of it for machines, with the discordant counts."""
        counts = {"n_only_first": len(self.only_first), "n_only_second": len(self.only_second)}
        # One problem gives no p and no bounds, and JSON has no word for NaN and infinities.
        bounds = [bound if math.isfinite(bound) else None for bound in self.interval]
        p = self.p if math.isfinite(self.p) else None
        return asdict(self) | {"interval": bounds, "p": p} | counts

    def __str__(self) -> str:
        return (
            f"{self.first} {percent(self.first_accuracy)} against {self.second} "
            f"{percent(self.second_accuracy)} on {self.n} problems: "
            f"{points(self.difference, self.interval)}, p = {number(self.p, 2)} ({self.test}). "
            f"Better on {len(self.only_first)}, worse on {len(self.only_second)}."
        )


def compare(first: Path, second: Path) -> Comparison:
    """The paired difference of two finished runs.

    One completion each: McNemar's exact test and Newcombe's interval. Several: the paired t test on
    the means per problem, so that the samples of one problem count as one cluster.

    Raises:
        RunError: a run is not finished, or the runs differ in problems or verifier.
    """
    results = read_result(first), read_result(second)
    _same_verifier(*results)
    one, two = (_means(graded_of(run)) for run in (first, second))
    _same_problems(first, second, one, two)
    ids = sorted(one)
    better = tuple(id for id in ids if one[id][0] > two[id][0])
    worse = tuple(id for id in ids if one[id][0] < two[id][0])
    if results[0].k == results[1].k == 1:
        both = sum(one[id][0] == two[id][0] == 1 for id in ids)
        neither = len(ids) - both - len(better) - len(worse)
        found: Paired = paired_shares(both, len(better), len(worse), neither)
        test = "McNemar exact"
    else:
        found = paired_means([one[id][0] for id in ids], [two[id][0] for id in ids])
        test = "paired t over problems"
    return Comparison(
        first=results[0].about.model,
        second=results[1].about.model,
        n=len(ids),
        first_accuracy=results[0].accuracy,
        second_accuracy=results[1].accuracy,
        difference=found.difference,
        interval=found.interval,
        p=found.p,
        test=test,
        only_first=better,
        only_second=worse,
    )


def graded_of(run: Path, verifier: str | None = None) -> list[tuple[Sample, Verdict]]:
    """The completions of a run with their verdicts, in the order of the store.

    Args:
        run: the run folder.
        verifier: key of the verifier; by default the run's own.

    Raises:
        RunError: it is no run, or a completion has no verdict.
    """
    folder = RunFolder.open(run)
    key = verifier or folder.config().get("verifier", "")
    verdicts = folder.samples.verdicts(key)
    samples = list(folder.samples.rows())
    lacking = sum(sample.key not in verdicts for sample in samples)
    if lacking:
        raise RunError(
            f"{str(run)!r} has no verdict of {key!r} on {lacking} of {len(samples)} completions. "
            "Run its command again, with the same --out, to finish it."
        )
    return [(sample, verdicts[sample.key]) for sample in samples]


Means = dict[str, tuple[float, str]]


def _means(graded: list[tuple[Sample, Verdict]]) -> Means:
    """Problem id -> (share of its completions that are correct, its text and gold)."""
    scores: dict[str, list[bool]] = {}
    texts: dict[str, str] = {}
    for sample, verdict in graded:
        scores.setdefault(sample.id, []).append(verdict.correct is True)
        texts[sample.id] = f"{sample.problem}\x1f{sample.gold}"
    return {id: (sum(found) / len(found), texts[id]) for id, found in scores.items()}


def _same_verifier(one: EvalResult, two: EvalResult) -> None:
    if one.about.verifier != two.about.verifier:
        raise RunError(
            f"The runs were marked by {one.about.verifier!r} and {two.about.verifier!r}; "
            "their accuracies cannot be compared. Evaluate both with the same --verifier."
        )


def _same_problems(first: Path, second: Path, one: Means, two: Means) -> None:
    only_one, only_two = len(one.keys() - two.keys()), len(two.keys() - one.keys())
    if only_one or only_two:
        raise RunError(
            f"The runs hold different problems: {only_one} only in {str(first)!r}, {only_two} only "
            f"in {str(second)!r}, {len(one.keys() & two.keys())} in both. A paired comparison "
            "needs the same: evaluate both with the same --task, --limit and --first."
        )
    changed = [id for id in one if one[id][1] != two[id][1]]
    if changed:
        raise RunError(
            f"{len(changed)} problems have one id and two texts or golds, such as {changed[0]!r}: "
            "the data changed between the runs. Evaluate both on the same data."
        )
