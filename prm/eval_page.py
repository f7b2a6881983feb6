"""The page of an evaluation: tables, diagrams, and solutions with their step scores."""

from __future__ import annotations

from stepmark.report import (
    Page,
    SolutionView,
    confusion_svg,
    position_svg,
    reliability_svg,
)
from stepmark.report.diagrams import Reliability

from .eval_report import FORMULAS, DataSet, EvalReport, Record
from .eval_table import (
    F1_HEADERS,
    f1_lines,
    headline,
    mean_lines,
    notes,
    position_lines,
    share,
    step_lines,
)

__all__ = ["eval_page"]


def eval_page(report: EvalReport) -> Page:
    """The page, to be written where it is wanted.

    Raises:
        SetupError: matplotlib is not installed.
    """
    labels = dict.fromkeys(record.label for record in report.records)
    names = ", ".join(data.name for data in report.data)
    page = Page("Evaluation of step scorers", f"{', '.join(labels)} on {names}")
    headers, means = mean_lines(report)
    if means:
        page.section("All data").table(headers, means, "F1 of first errors, per cent")
    for data in report.data:
        records = report.of(data.name)
        _tables(page, data, records)
        for record in records:
            _of_scorer(page, record)
    page.section("What the figures are")
    page.table(("figure", "formula"), list(FORMULAS.items()))
    page.text(
        "F1 is ProcessBench's (arXiv:2412.06559): the harmonic mean of two accuracies, not of "
        "precision and recall. Its standard error is by the delta method; its interval carries "
        "Wilson's intervals of the two accuracies over. Floors know nothing of the steps: a scorer "
        "that does not clear them has not been shown to read them."
    )
    return page


def _tables(page: Page, data: DataSet, records: list[Record]) -> None:
    lines = f1_lines(data, records)
    grey = [place for place, line in enumerate(lines) if line.kind == "published"]
    page.section(data.name).text(headline(data, records))
    page.table(F1_HEADERS, [line.cells for line in lines], "First errors, per cent", grey=grey)
    page.text("\n".join(notes(data, records)))
    page.table(*step_lines(records), "Steps and whole solutions")
    page.figure(
        position_svg(
            {record.label: record.by_position for record in records},
            "Right and wrong steps told apart, by position",
        ),
        "0.5 is chance. The tenth position stands for all from there on.",
    )
    page.table(*position_lines(records))


def _of_scorer(page: Page, record: Record) -> None:
    page.section(f"{record.label} on {record.data}")
    if record.bins:
        points = [Reliability(one.mean_score, one.share_right, one.steps) for one in record.bins]
        page.figure(
            reliability_svg(points, "Are scores chances?"),
            "Steps in bins of about equal counts; numbers are steps, bars are 95 % intervals.",
        )
        page.table(
            ("scores from", "to", "steps", "mean score", "share right"),
            [
                (share(one.low), share(one.high), one.steps, *map(share, one[3:]))
                for one in record.bins
            ],
        )
    if record.confusion:
        counts = {(error, said): number for error, said, number in record.confusion}
        page.figure(
            confusion_svg(counts, "Which step is called the first error"),
            "Solutions with a score; steps from 1. On the outlined diagonal the first error is "
            "named exactly. Shades are shares of a row.",
        )
    if record.shown:
        page.text(
            "Some solutions of each outcome, chosen by hash. The deeper the red of a score, the "
            "lower it is; the first step below the threshold is outlined. A dash for a label: "
            "nothing is known of that step, as of those after the first error."
        )
        page.solutions([_view(record, number) for number in range(len(record.shown))])


def _view(record: Record, number: int) -> SolutionView:
    shown = record.shown[number]
    return SolutionView(
        f"{record.data}, {shown.id}",
        shown.problem,
        shown.steps,
        shown.scores,
        shown.labels,
        record.threshold,
        shown.first_error,
        shown.prediction,
        shown.kind,
    )
