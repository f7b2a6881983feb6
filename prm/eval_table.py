"""The tables of an evaluation: the same cells on a screen, in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from stepmark.report import NOTHING, markdown_table

from .eval_report import DataSet, EvalReport, Figure, Record
from .published_figures import published_for

__all__ = [
    "F1_HEADERS",
    "Line",
    "f1_lines",
    "headline",
    "mean_lines",
    "notes",
    "position_lines",
    "step_lines",
    "table_text",
]

F1_HEADERS = ("scorer", "F1", "95 % / source", "SE", "error", "correct")
"""All in per cent; error and correct are the two accuracies."""

STEP_NAMES = {
    "step_auroc": "AUROC of steps, pooled",
    "step_auroc_within": "AUROC of steps, within",
    "step_auroc_same_position": "AUROC, same position",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "near_accuracy": "first error, +-1 step",
    "expected_calibration_error": "calibration error",
    "brier": "Brier score",
    "share_of_last_minima": "least score is last",
    "length_correlation": "Spearman with length",
    "outcome_auroc": "AUROC of outcome",
}
"""Figures of the second table, by the words that it says for them."""


class Line(NamedTuple):
    """A row of a table, and whose it is: published ones are shown in grey."""

    kind: Literal["scorer", "unseen", "floor", "published"]
    cells: tuple[str, ...]


def headline(data: DataSet, records: Sequence[Record]) -> str:
    """One paragraph: which rows these are, and what is the same for all scorers."""
    limited = "" if data.rows == data.of_rows else f" of {data.of_rows:,}, chosen by hash"
    known = f", ProcessBench {data.subset} by its content" if data.subset else ""
    first = records[0]
    errors, corrects = first.figure("error_accuracy").n, first.figure("correct_accuracy").n
    dev = (
        f"; the threshold was fitted on {first.fitted_on:,} of them by problem, figures are of the "
        f"other {first.rows:,}"
        if first.fitted_on
        else ""
    )
    split = f"; {errors:,} with a first error, {corrects:,} without" if errors + corrects else ""
    return f"{data.name}: {data.rows:,} rows{limited}{known}{dev}{split}."


def f1_lines(data: DataSet, records: Sequence[Record]) -> list[Line]:
    """F1 of every scorer, then floors, then what was published for this subset."""
    lines: list[Line] = []
    for record in records:
        lines.append(Line("scorer", _f1_cells(record.label, record.figures)))
        if record.unseen:
            name = f"{record.label}, unseen problems"
            lines.append(Line("unseen", _f1_cells(name, record.unseen)))
    if not records[0].floors:
        return lines
    for name, value in records[0].floors:
        lines.append(Line("floor", (f"floor: {name}", per_cent(value), "", "", "", "")))
    for model, kind, value, source in published_for(data.subset) if data.subset else ():
        told = model if kind == "PRM" else f"{model} ({kind})"
        lines.append(Line("published", (told, per_cent(value), source, "", "", "")))
    return lines


def _f1_cells(name: str, figures: Sequence[Figure]) -> tuple[str, ...]:
    by_name = {figure.name: figure for figure in figures}
    f1 = by_name["processbench_f1"]
    interval = "" if f1.low is None else f"[{per_cent(f1.low)}, {per_cent(f1.high)}]"
    others = (by_name[one].value for one in ("error_accuracy", "correct_accuracy"))
    return (name, per_cent(f1.value), interval, per_cent(f1.standard_error), *map(per_cent, others))


def step_lines(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the figures of steps and whole solutions; scorers stand side by side."""
    rows: list[list[str]] = []
    for name, words in STEP_NAMES.items():
        found = [record.figure(name) for record in records]
        counts = sorted({figure.n for figure in found})
        told = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        rows.append([words, *(share(figure.value) for figure in found), told])
    return ["", *(record.label for record in records), "n"], rows


def position_lines(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """AUROC by position of the step; the tenth stands for all from there."""
    found = [{at: (n, area) for at, n, area in record.by_position} for record in records]
    places = sorted({at for one in found for at in one})
    rows: list[list[str]] = []
    for at in places:
        counts = [one.get(at, (0, None)) for one in found]
        name = f"step {at}" + (" and on" if at == LAST else "")
        rows.append([name, *(share(area) for _, area in counts), f"{max(n for n, _ in counts):,}"])
    return ["AUROC by position", *(record.label for record in records), "n"], rows


LAST = 10


def mean_lines(report: EvalReport) -> tuple[list[str], list[list[str]]]:
    """F1 of every scorer on every data set and their plain mean; nothing for one data set."""
    names = [data.name for data in report.data]
    if len(names) < 2:
        return [], []
    rows: list[list[str]] = []
    for label in dict.fromkeys(record.label for record in report.records):
        of = {record.data: record for record in report.records if record.label == label}
        values = [of[name].figure("processbench_f1").value for name in names]
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if len(known) == len(values) else None
        rows.append([label, *map(per_cent, values), per_cent(mean)])
    return ["F1", *(data.subset or data.name for data in report.data), "mean"], rows


def notes(data: DataSet, records: Sequence[Record]) -> list[str]:
    """What a reader of the table must know of these scorers and rows."""
    found: list[str] = []
    for one in records:
        told = [f"a step below {one.threshold:.4g} is called wrong"]
        told += [f"a solution's score is the {one.aggregation} of its steps'"]
        if one.unscored_steps:
            told.append(f"{one.unscored_steps:,} steps lie beyond its limit and have no score")
        if one.unscored_rows:
            told.append(f"{one.unscored_rows:,} solutions have no score at all and count as missed")
        if one.failed_rows:
            told.append(f"it failed on {one.failed_rows:,} solutions, which count as missed")
        if one.is_checkpoint:
            told.append(_overlap(one))
        found.append(f"{one.label} ({one.scorer}): {'; '.join(told)}.")
    if data.rejects:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in data.rejects.items())
        found.append(f"{data.name}: rows that could not be read: {reasons}.")
    if data.subset and data.rows != data.of_rows:
        found.append(f"Published figures are on all {data.of_rows:,} rows.")
    return found


def _overlap(one: Record) -> str:
    if one.trained_on is None:
        return "it does not say which problems it was trained on"
    if not one.trained_on:
        return f"it was trained on none of the {one.problems:,} problems"
    without = "" if one.unseen else ", which leaves none"
    return f"it was trained on the problems of {one.trained_on:,} of {one.rows:,} rows{without}"


def table_text(report: EvalReport) -> str:
    """All tables in Markdown."""
    parts = ["# Evaluation of step scorers"]
    headers, means = mean_lines(report)
    if means:
        parts.append(markdown_table(headers, means))
    for data in report.data:
        records = report.of(data.name)
        parts += [f"## {data.name}", headline(data, records), "All in per cent."]
        cells = [_marked(line) for line in f1_lines(data, records)]
        parts += [markdown_table(F1_HEADERS, cells), "  \n".join(notes(data, records))]
        parts += [markdown_table(*step_lines(records)), markdown_table(*position_lines(records))]
    return "\n\n".join(parts) + "\n"


def _marked(line: Line) -> tuple[str, ...]:
    """The cells with what others published in italics."""
    name, *rest = line.cells
    return (f"*{name}*" if line.kind == "published" else name, *rest)


def per_cent(value: float | None) -> str:
    """A share in per cent, without the sign.

    >>> per_cent(0.1234), per_cent(None)
    ('12.3', '–')
    """
    return NOTHING if value is None else f"{100 * value:.1f}"


def share(value: float | None) -> str:
    """A number with three decimals.

    >>> share(0.5), share(None)
    ('0.500', '–')
    """
    return NOTHING if value is None else f"{value:.3f}"
