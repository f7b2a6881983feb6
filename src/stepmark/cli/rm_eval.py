"""``stepmark rm eval``: how well a scorer tells right solutions from wrong ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import ConfigError, require

from .console import Debug, Json, emit, grid, out, plain, progress, say, show, warn
from .interrupt import stoppable
from .prm_eval import named_scorers

if TYPE_CHECKING:
    from stepmark.prm.eval_report import Figure
    from stepmark.prm.outcome_data import Solution
    from stepmark.prm.outcome_eval import OutcomeReport

__all__ = ["evaluate"]

Scorers = Annotated[
    list[str],
    typer.Argument(
        metavar="SCORER...",
        help="Folder of a checkpoint of rm train or prm train, a name, or file.py:NAME.",
    ),
]
Data = Annotated[
    list[str],
    typer.Option(
        metavar="FILE",
        help="Rows with final_correct, or prompt, chosen and rejected; repeatable.",
    ),
]
Aggregation = Annotated[
    str | None, typer.Option(help="Of scorers of steps: min, prod, mean, last, geometric, max.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="So many rows of a file, by a fixed hash.")]
MinAuroc = Annotated[
    float | None, typer.Option(min=0, max=1, help="Exit 1 where an AUROC is below, such as 0.7.")
]


def evaluate(
    scorers: Scorers,
    data: Data,
    aggregation: Aggregation = None,
    limit: Limit = None,
    min_auroc: MinAuroc = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Tell right solutions from wrong ones: AUROC, order within problems, best of k, calibration.

    stepmark rm eval runs/rm-1/checkpoints/best --data solutions.jsonl
    """
    require("scipy", extra="train", purpose="An evaluation of outcome reward models")
    from stepmark.prm.outcome_eval import examine_outcomes

    loaded = named_scorers(scorers)
    found: list[OutcomeReport] = []
    with stoppable(_again()), _bar(as_json) as on_progress:
        for place in dict.fromkeys(data):
            solutions = _solutions(place, limit)
            for label, scorer in loaded.items():
                report = examine_outcomes(
                    scorer,
                    solutions,
                    data=place,
                    label=label,
                    aggregation=aggregation,
                    on_progress=on_progress(f"{label} on {place}"),
                )
                found.append(report)
    missed = [one for one in found if not _reaches(one, min_auroc)]
    value = {"results": [one.to_row() for one in found]}
    gate = {"gate": {"min_auroc": min_auroc, "missed": [f"{o.label} on {o.data}" for o in missed]}}
    emit(value | (gate if min_auroc is not None else {}), as_json, lambda: _tell(found))
    for one in missed:
        warn(f"gate: the AUROC of {one.label} on {one.data} is below --min-auroc {min_auroc:g}.")
    failed = sum(one.failed for one in found)
    if failed:
        warn(f"scorers failed on {failed:,} solutions, which count as not told. Ask again.")
    return 1 if missed else 3 if failed else 0


def _again() -> str:
    import shlex
    import sys

    return shlex.join(["stepmark", *sys.argv[1:]])


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    with progress(is_quiet=as_json) as bar:

        def named(name: str) -> Callable[[int, int], None]:
            task: Any = bar.add_task(plain(name), total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield named


def _solutions(place: str, limit: int | None) -> list[Solution]:
    from stepmark.prm.outcome_data import limited, solutions_of

    dropped = Counter[str]()
    kept: list[Solution] = []
    for one in solutions_of([place]):
        if isinstance(one, str):
            dropped[one] += 1
        else:
            kept.append(one)
    found = limited(kept, limit, "--limit", dropped)
    for reason, number in dropped.items():
        say(f"{place}: {number:,} rows are not used: {reason}")
    if not found:
        raise ConfigError(
            f"{place} holds no solution of which it is known whether it ends right. Rows need "
            "final_correct (true or false), or the columns prompt, chosen and rejected."
        )
    return found


def _reaches(report: OutcomeReport, least: float | None) -> bool:
    value = report.figure("auroc").value
    return least is None or (value is not None and value >= least)


HEADERS = ("scorer", "AUROC", "pairs in order", "accuracy", "larger class", "ECE", "Brier")


def _tell(found: Sequence[OutcomeReport]) -> None:
    for place in dict.fromkeys(one.data for one in found):
        reports = [one for one in found if one.data == place]
        first = reports[0]
        out.print(
            f"{place}: {first.solutions:,} solutions of {first.problems:,} problems, "
            f"{first.right:,} right",
            markup=False,
            style="bold",
        )
        _tell_figures(reports)
        _tell_best(reports)
        for one in reports:
            say(f"{one.label}: {one.scorer}, solutions by {one.aggregation}.")
            if one.unscored:
                say(f"{one.label}: {one.unscored:,} solutions without a score rank last.")
            if one.trained_on:
                say(
                    f"{one.label} was trained on the problems of {one.trained_on:,} of these "
                    f"{one.solutions:,} solutions{'; (unseen) is without them' * bool(one.unseen)}."
                )
    say(
        "Intervals are 95 %, over problems. Pairs are a right and a wrong solution of one problem; "
        "ties count half. Accuracy is at a score of 0.5; larger class is that of one guess for all."
    )


def _tell_figures(reports: Sequence[OutcomeReport]) -> None:
    table = grid(*HEADERS)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in reports:
        table.add_row(plain(one.label), *map(_cell, one.figures))
        if one.unseen:
            table.add_row(plain(f"{one.label} (unseen)"), *map(_cell, one.unseen))
    show(table)


def _tell_best(reports: Sequence[OutcomeReport]) -> None:
    if not any(one.best_of for one in reports):
        return
    out.print()
    table = grid("the best of", "problems", "scorer", "right", "at random", "never wrong")
    for column in (*table.columns[:2], *table.columns[3:]):
        column.justify = "right"
    for one in reports:
        for row in one.best_of:
            bounds = (f"{row.mean:.3f}", f"{row.bound:.3f}")
            best = _cell(row.best)
            table.add_row(str(row.k), f"{row.problems:,}", plain(one.label), best, *bounds)
    show(table)


def _cell(figure: Figure) -> str:
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
