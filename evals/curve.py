"""Accuracy against the number of completions of a problem: what more of them buy, by each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepmark.errors import UnknownNameError
from stepmark.prm import AGGREGATIONS
from stepmark.protocols import OutcomeVerifier
from stepmark.report import Series, curve_svg, markdown_table, percent
from stepmark.statistics import CurvePoint, accuracy_curve, doublings

from .drawn import DrawnRun

__all__ = ["Curves", "curves", "curves_json", "curves_svg", "curves_text"]

Curves = Mapping[str, tuple[CurvePoint, ...]]
"""Points by the name of the way; all at the same numbers of completions."""


def curves(
    run: Path,
    scorer: str | None = None,
    aggregations: Sequence[str] = ("min",),
    verifier: OutcomeVerifier | None = None,
) -> Curves:
    """The accuracy of a run at 1, 2, 4 ... of its completions, by each way to choose among them.

    Args:
        run: a finished evaluation with several completions per problem.
        scorer: key of a scorer that has scored them, or its name before the ``@``.
        aggregations: how its scores become one, for best of N and weighted votes.
        verifier: whose equality says which results are one; by default the run's own.

    Raises:
        RunError: the run is not finished, or has no scores of that scorer.
        UnknownNameError: there is no such aggregation.
    """
    for how in aggregations:
        if how not in AGGREGATIONS:
            raise UnknownNameError.of("aggregation", how, AGGREGATIONS)
    drawn = DrawnRun(run, verifier)
    sizes = doublings(drawn.least[1])
    plain = drawn.drawn(votes=True)
    found = {"pass@N": accuracy_curve(plain, "pass", sizes)}
    for how in aggregations if scorer else ():
        chosen = drawn.drawn(drawn.choice(scorer or "", how), votes=True)
        found[f"best of N, {how}"] = accuracy_curve(chosen, "best", sizes)
        found[f"weighted majority, {how}"] = accuracy_curve(chosen, "weighted", sizes)
    found["majority"] = accuracy_curve(plain, "majority", sizes)
    found["any one"] = accuracy_curve(plain, "mean", sizes)
    return found


def curves_text(found: Curves) -> str:
    """The curves as a table in Markdown."""
    sizes = [point.k for point in next(iter(found.values()))]
    rows = [
        (name, *(percent(point.mean, point.interval) for point in points))
        for name, points in found.items()
    ]
    text = markdown_table(("", *(f"N = {k}" for k in sizes)), rows)
    said = "Means over all subsets of N completions, exact; intervals: Wilson, 95 %, over problems."
    if draws := max(point.draws for points in found.values() for point in points):
        said += f" Where there are too many subsets of a problem, {draws:,} were drawn."
    return f"{text}\n\n{said}\n"


def curves_json(found: Curves) -> dict[str, list[dict[str, Any]]]:
    """The curves for machines."""
    return {
        name: [
            {
                "n": point.k,
                "accuracy": point.mean,
                "low": point.interval.low,
                "high": point.interval.high,
                "se": point.se,
                "draws": point.draws,
            }
            for point in points
        ]
        for name, points in found.items()
    }


def curves_svg(found: Curves, title: str) -> str:
    """The curves as a picture, each in the band of its interval.

    Raises:
        SetupError: matplotlib is not installed.
    """
    lines = [
        Series(name, tuple((p.k, p.mean) for p in points), tuple(p.interval for p in points))
        for name, points in found.items()
    ]
    return curve_svg(lines, title)
