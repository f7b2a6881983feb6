"""What an evaluation found, as it is stored: ``evaluation.json``, from which table and page come.

Every figure has its name, the formula's name, its value and over how many it is; `FORMULAS` says
what the formulas are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from stepmark.errors import RunError
from stepmark.statistics import wilson
from stepmark.store import write_json

from .evaluate import Evaluation
from .metrics import Bin, FirstErrors, f1_interval

__all__ = [
    "EVALUATION",
    "FORMULAS",
    "DataSet",
    "EvalReport",
    "Figure",
    "Record",
    "Shown",
    "figures_of",
    "read_report",
    "to_row",
    "write_report",
]

EVALUATION = "evaluation.json"

FORMULAS: dict[str, str] = {
    "processbench_f1": "2 a b / (a + b): a = error_accuracy, b = correct_accuracy",
    "error_accuracy": "of solutions with an error: share whose first one is named exactly",
    "correct_accuracy": "of solutions without an error: share where none is named",
    "near_accuracy": "as error_accuracy, one step to either side counts too",
    "step_auroc": "chance that a right step scores above a wrong one, all steps; ties half",
    "step_auroc_within": "the same among the steps of one solution, mean over solutions with both",
    "step_auroc_same_position": "the same over pairs of steps at one position of their solutions",
    "average_precision": "area under precision over recall of finding wrong steps by low scores",
    "balanced_accuracy": "mean of the shares of right steps kept and of wrong steps called wrong",
    "expected_calibration_error": "mean distance of score and share right, bins weighted by steps",
    "brier": "mean squared difference of score and label",
    "share_of_last_minima": "share of solutions whose least score is at the last step",
    "length_correlation": "Spearman's, of aggregated score and number of steps",
    "outcome_auroc": "AUROC of the aggregated score for right final answers",
}
"""What each figure is; all but the correlation lie in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with what it is of."""

    name: str
    value: float | None
    """None where it cannot be told."""
    n: int
    """Solutions, or steps, that it is over."""
    low: float | None = None
    """Lower end of the 95 % interval, where there is one."""
    high: float | None = None
    standard_error: float | None = None


Kind = Literal["found", "elsewhere", "missed", "alarm", "clear"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A solution with its scores, for the page."""

    id: str
    kind: Kind
    """First error ``found``; named ``elsewhere``; ``missed``; false ``alarm``; ``clear``."""
    problem: str
    steps: tuple[str, ...]
    scores: tuple[float | None, ...]
    labels: tuple[float | None, ...]
    first_error: int
    prediction: int


@dataclass(frozen=True, slots=True)
class DataSet:
    """The rows that were evaluated on."""

    name: str
    place: str
    digest: str
    format: str
    rows: int
    of_rows: int
    """Rows before ``--limit``."""
    subset: str | None
    """Of ProcessBench, where it is one."""
    rejects: dict[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One scorer on one data set."""

    data: str
    label: str
    """What it was called on the command line."""
    scorer: str
    """Its key."""
    rows: int
    problems: int
    unscored_steps: int
    threshold: float
    fitted_on: int
    """Rows of the development part, which are in no figure; 0 for a threshold that was given."""
    aggregation: str
    figures: tuple[Figure, ...]
    floors: tuple[tuple[str, float], ...]
    """F1 by name of those who know nothing of the steps."""
    by_position: tuple[tuple[int, int, float | None], ...]
    """Position from 1, steps there, AUROC; the tenth stands for all from there."""
    bins: tuple[Bin, ...]
    confusion: tuple[tuple[int, int, int], ...]
    """First error, prediction, solutions."""
    trained_on: int | None
    """Rows whose problem it was trained on; None where that is not known."""
    unseen: tuple[Figure, ...]
    """The figures without those rows, where there are any."""
    shown: tuple[Shown, ...]
    is_checkpoint: bool = False
    """Whether it was trained here, and may say on which problems."""
    unscored_rows: int = 0
    """Solutions of which no step lies within its limit; they count as missed."""
    failed_rows: int = 0
    """Solutions on which it failed; they count as missed until they are asked again."""

    def figure(self, name: str) -> Figure:
        """The figure of a name."""
        return next(one for one in self.figures if one.name == name)


@dataclass(frozen=True, slots=True)
class EvalReport:
    """All scorers on all data sets."""

    version: Literal[2]
    data: tuple[DataSet, ...]
    records: tuple[Record, ...]

    def of(self, data: str) -> list[Record]:
        """The records of a data set, in the order of the scorers."""
        return [record for record in self.records if record.data == data]


_REPORT = TypeAdapter(EvalReport)


def figures_of(found: Evaluation) -> tuple[Figure, ...]:
    """All figures of an evaluation, in the order of `FORMULAS`."""
    steps, labelled = found.steps, found.steps.right + found.steps.wrong
    calibration = steps.calibration
    return (
        *_first_error_figures(found.errors),
        Figure("step_auroc", steps.auroc, labelled),
        Figure("step_auroc_within", steps.within_auroc, steps.mixed),
        Figure("step_auroc_same_position", steps.same_position_auroc, steps.comparable),
        Figure("average_precision", steps.average_precision, labelled),
        Figure("balanced_accuracy", steps.balanced_accuracy, labelled),
        Figure(
            "expected_calibration_error",
            calibration.expected_error if calibration else None,
            labelled,
        ),
        Figure("brier", calibration.brier if calibration else None, labelled),
        Figure("share_of_last_minima", found.last_minima, found.long),
        Figure("length_correlation", found.length_correlation, found.whole),
        Figure("outcome_auroc", found.outcome_auroc, found.answered),
    )


def _first_error_figures(found: FirstErrors | None) -> tuple[Figure, ...]:
    if found is None:
        names = ("processbench_f1", "error_accuracy", "correct_accuracy", "near_accuracy")
        return tuple(Figure(name, None, 0) for name in names)
    return (
        Figure(
            "processbench_f1",
            found.f1,
            found.errors + found.corrects,
            *f1_interval(found),
            found.standard_error,
        ),
        _share("error_accuracy", found.error_accuracy, found.errors),
        _share("correct_accuracy", found.correct_accuracy, found.corrects),
        _share("near_accuracy", found.near_accuracy, found.errors),
    )


def _share(name: str, share: float, n: int) -> Figure:
    return Figure(name, share, n, *wilson(round(share * n), n), (share * (1 - share) / n) ** 0.5)


def write_report(folder: Path, report: EvalReport) -> Path:
    """The path of ``evaluation.json``, complete or as it was."""
    path = folder / EVALUATION
    write_json(path, to_row(report))
    return path


def to_row(report: EvalReport) -> dict[str, Any]:
    """The report as plain values, for machines."""
    return {"formulas": FORMULAS} | _REPORT.dump_python(report, mode="json")


def read_report(folder: Path) -> EvalReport:
    """What an evaluation found, from its folder.

    Raises:
        RunError: there is no ``evaluation.json``, or it is not one that this version reads.
    """
    path = folder / EVALUATION
    if not path.is_file():
        raise RunError(
            f"{str(folder)!r} holds no {EVALUATION}: no evaluation ended there. Name a folder that "
            "stepmark prm eval --out wrote."
        )
    try:
        return _REPORT.validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        first = " ".join(str(error).split())
        raise RunError(
            f"{str(path)!r} cannot be read: {first:.300}. It was altered, or written by another "
            "version. Evaluate again; scores in that folder are used again."
        ) from error
