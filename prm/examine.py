"""Step scorers beside each other on labelled solutions, with floors and with what was trained on.

::

    rows = read_eval_rows("processbench_gsm8k.jsonl")
    report = examine({"arithmetic": load_scorer("arithmetic")}, [rows])

``stepmark prm eval`` is this, with its table, its page and a folder that keeps the scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepmark.protocols import StepScorer
from stepmark.store import text_hash

from .eval_report import DataSet, EvalReport, Figure, Kind, Record, Shown, figures_of
from .eval_rows import EvalRows
from .eval_scores import ScoreFile
from .evaluate import Evaluation, Scored, evaluate, score_rows
from .formats import problem_id, row_id
from .metrics import UNTOLD, first_below
from .rules import Arithmetic
from .scorers import check_scorer_columns, check_scores_steps
from .splits import is_in_share, overlap, read_problems

__all__ = ["Examination", "examine"]

OF_A_KIND = 4
"""Solutions of each outcome that are kept for the page."""

Progress = Callable[[str, str, int, int], None]
"""Told the label of the scorer, the name of the data, done and total."""


@dataclass(frozen=True, slots=True)
class Examination:
    """How scorers are examined."""

    threshold: float | None = 0.5
    """Below it a step is called wrong; None fits it on a development part."""
    dev_share: float = 0.2
    """Of the problems which that part takes; its rows are in no figure."""
    aggregation: str | None = None
    """How scores become one for the solution; None: what each scorer says of itself."""


def examine(
    scorers: Mapping[str, StepScorer],
    data: Sequence[EvalRows],
    how: Examination | None = None,
    *,
    folder: Path | None = None,
    on_progress: Progress | None = None,
) -> EvalReport:
    """Every scorer on every data set.

    Args:
        scorers: by what tables call them.
        data: from `read_eval_rows`.
        how: threshold and aggregation.
        folder: keeps ``scores.jsonl``; scores that lie there are not worked out again.
        on_progress: told while scores become ready.

    Raises:
        DataError: a scorer gives another number of scores than there are steps.
        ConfigError: a scorer is of whole solutions, or needs a column that the rows lack, a
            setting is out of range, or a development part lacks solutions with errors or without.
        RunError: ``scores.jsonl`` or ``problems.txt`` was altered.
    """
    for label, scorer in scorers.items():
        check_scores_steps(scorer, label)
    how, file, records = how or Examination(), ScoreFile(folder), list[Record]()
    for rows in data:
        rule = list(score_rows(Arithmetic(), rows.rows))
        columns = _columns(rows)
        for label, scorer in scorers.items():
            check_scorer_columns(scorer, columns, rows.name)

            def tell(done: int, total: int, label: str = label, name: str = rows.name) -> None:
                if on_progress:
                    on_progress(label, name, done, total)

            scored = file.scored(scorer, rows, tell)
            record = _record(label, scorer, rows, scored, rule, how)
            file.predicted(scorer, rows, _said(scored, record.threshold))
            records.append(record)
    sets = tuple(
        DataSet(
            rows.name,
            rows.place,
            rows.digest,
            rows.format,
            len(rows.rows),
            rows.of_rows,
            rows.subset,
            dict(rows.rejects),
        )
        for rows in data
    )
    return EvalReport(2, sets, tuple(records))


def _columns(rows: EvalRows) -> list[str]:
    """What every row has beside problem, steps and labels."""
    shared = set.intersection(*({*row.problem.meta, *row.meta} for row in rows.rows))
    has_gold = all(row.problem.gold is not None for row in rows.rows)
    return sorted(shared | ({"gold"} if has_gold else set()))


def _record(
    label: str,
    scorer: StepScorer,
    rows: EvalRows,
    scored: Sequence[Scored],
    rule: Sequence[Scored],
    how: Examination,
) -> Record:
    aggregation = how.aggregation or getattr(scorer, "aggregation", "min")
    found = evaluate(
        scored,
        name=rows.name,
        scorer=scorer.key,
        threshold=how.threshold,
        dev_share=how.dev_share,
        aggregation=aggregation,
    )
    is_dev = [
        bool(found.fitted_on) and is_in_share(one.row.problem.text, how.dev_share) for one in scored
    ]
    kept = [one for one, dev in zip(scored, is_dev, strict=True) if not dev]
    ruled = [one for one, dev in zip(rule, is_dev, strict=True) if not dev]
    trained_on, unseen = _unseen(scorer, kept, found)
    return Record(
        data=rows.name,
        label=label,
        scorer=scorer.key,
        rows=found.rows,
        problems=found.problems,
        unscored_steps=found.unscored_steps,
        threshold=found.threshold,
        fitted_on=found.fitted_on,
        aggregation=aggregation,
        figures=figures_of(found),
        floors=_floors(found, ruled),
        by_position=found.steps.by_position,
        bins=found.steps.calibration.bins if found.steps.calibration else (),
        confusion=tuple((*pair, count) for pair, count in sorted(found.confusion.items())),
        trained_on=trained_on,
        unseen=unseen,
        shown=_shown(kept, found.threshold),
        is_checkpoint=isinstance(getattr(scorer, "path", None), Path),
        unscored_rows=found.unscored_rows,
        failed_rows=found.failed_rows,
    )


def _said(scored: Sequence[Scored], threshold: float) -> list[int | None]:
    """The predictions; None for a solution without a score."""
    found = [first_below(one.scores, threshold) for one in scored]
    return [None if said == UNTOLD else said for said in found]


def _floors(found: Evaluation, ruled: Sequence[Scored]) -> tuple[tuple[str, float], ...]:
    if found.errors is None:
        return ()
    rule = evaluate(ruled, name=found.name, scorer="arithmetic")
    by_rule = rule.errors.f1 if rule.errors else 0.0
    return (*found.floors.items(), ("arithmetic rule", by_rule))


def _unseen(
    scorer: StepScorer, kept: Sequence[Scored], found: Evaluation
) -> tuple[int | None, tuple[Figure, ...]]:
    """Rows whose problem the model was trained on, and the figures without them."""
    place = getattr(scorer, "path", None)
    trained = read_problems(place) if isinstance(place, Path) else None
    if trained is None:
        return None, ()
    shared = overlap(trained, [one.row.problem.text for one in kept])
    rest = [one for one in kept if problem_id(one.row.problem.text) not in shared.shared]
    if not shared.rows or not rest:
        return shared.rows, ()
    without = evaluate(
        rest,
        name=found.name,
        scorer=found.scorer,
        threshold=found.threshold,
        aggregation=found.aggregation,
    )
    return shared.rows, figures_of(without)


def _shown(kept: Sequence[Scored], threshold: float) -> tuple[Shown, ...]:
    """Some solutions of each outcome, chosen by hash."""
    kinds: dict[Kind, list[Shown]] = defaultdict(list)
    for one in sorted(kept, key=_place):
        error, said = one.row.first_error, first_below(one.scores, threshold)
        if error is None or said == UNTOLD or len(kinds[kind := _kind(error, said)]) >= OF_A_KIND:
            continue
        kinds[kind].append(
            Shown(
                str(one.row.meta.get("id") or one.row.problem.id),
                kind,
                one.row.problem.text,
                one.row.steps,
                one.scores,
                one.row.labels,
                error,
                said,
            )
        )
    order: tuple[Kind, ...] = ("found", "elsewhere", "missed", "alarm", "clear")
    return tuple(shown for kind in order for shown in kinds[kind])


def _place(one: Scored) -> str:
    return text_hash("shown " + row_id(one.row.problem.text, one.row.steps))


def _kind(error: int, said: int) -> Kind:
    if error < 0:
        return "clear" if said < 0 else "alarm"
    if said == error:
        return "found"
    return "missed" if said < 0 else "elsewhere"
