"""Scores for what is there already: the completions of a run, or the rows of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stepmark.errors import DataError, RunError, UnknownNameError
from stepmark.protocols import StepScorer
from stepmark.store import RunFolder, text_hash
from stepmark.store.files import append_rows, publish, read_rows
from stepmark.store.samples import Sample, ScoredSteps
from stepmark.types import Problem, Prompt, Rollout, StepItem

from .aggregation import AGGREGATIONS, aggregate
from .formats.rejects import Rejected
from .formats.rows import TEXTS, problem_id
from .formats.source import Source
from .marking import answers, spans_of, steps_of
from .scorers import check_scorer_columns, scores_of_solution
from .steps import step_texts

__all__ = ["Scoring", "score_file", "score_run"]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is, in completions of a run or units of a file."""

T = TypeVar("T")

AT_ONCE = 64
"""Solutions between two writes: what a stopped run makes again at most."""


class Scoring(NamedTuple):
    """What was scored."""

    scorer: str
    """Key of the scorer."""
    solutions: int
    """All that are scored, those that were before included."""
    fresh: int
    """Of them, scored now."""
    steps: int
    unscored: int
    """Steps without a score, beyond the scorer's limit."""
    mean: float | None
    """Mean score of the steps that have one."""
    rejected: int = 0
    """Rows that hold no solution."""
    first_reject: str = ""
    failed: int = 0
    """Solutions on which the scorer failed: not kept, asked again by the next run."""

    def to_row(self) -> dict[str, Any]:
        """The numbers for machines."""
        return self._asdict()


def score_run(
    folder: RunFolder,
    scorer: StepScorer,
    tokenizer: Any = None,
    on_progress: Progress | None = None,
) -> Scoring:
    """Step scores of all completions of a run, in its sample store under the scorer's key.

    Stopped at any moment, the same call makes only what is missing: also those on which the scorer
    failed.

    Args:
        folder: the run; its lock must be held.
        scorer: what scores.
        tokenizer: the policy's, to tell in which sampled token each step ends; without one the
            scores are stored alone.
        on_progress: see `Progress`.

    Raises:
        ConfigError: the scorer needs a column that the problems of the run do not have.
        DataError: the scorer gives no score in [0, 1], or None, per step.
        VerifierError: the scorer raised.
    """
    store, tell = folder.samples, on_progress or (lambda done, total: None)
    known = store.keys()
    missing = sorted(known - store.scores(scorer.key).keys())
    for sample in store.chosen(missing[:1]):
        check_scorer_columns(scorer, list(sample.meta), str(folder.path))
    done, failed = len(known) - len(missing), 0
    tell(done, len(known))
    for keys in _blocks(missing):
        samples = list(store.chosen(keys))
        found = _scored(scorer, samples, tokenizer)
        pairs = zip(samples, found, strict=True)
        store.append_scores(scorer.key, ((s.key, row) for s, row in pairs if row is not None))
        failed += found.count(None)
        done += len(samples)
        tell(done, len(known))
    rows = [row for key, row in store.scores(scorer.key).items() if key in known]
    scores = [row.scores for row in rows]
    return _summary(scorer.key, scores, len(missing) - failed)._replace(failed=failed)


def _blocks(values: Iterable[T]) -> Iterator[list[T]]:
    left = iter(values)
    while block := list(islice(left, AT_ONCE)):
        yield block


def _scored(
    scorer: StepScorer, samples: Sequence[Sample], tokenizer: Any
) -> list[ScoredSteps | None]:
    """Ends and scores of each sample, in order; None where the scorer failed.

    A text without tokens has no ends, one without words the score 0.
    """
    found: list[ScoredSteps | None] = []
    asked: dict[int, StepItem] = {}
    for at, sample in enumerate(samples):
        ends = (len(sample.ids) - 1,) if tokenizer is not None and sample.ids else ()
        if sample.completion.strip():
            problem, texts = sample.to_item().problem, ()
            if ends:
                ends, texts = steps_of(scorer, _rollout(sample), tokenizer)
            item = StepItem(problem, texts) if ends else _item(scorer, problem, sample.completion)
            if item is not None:
                asked[at] = item
        found.append(ScoredSteps(ends, (0.0,)))
    for at, row in zip(asked, answers(scorer, list(asked.values())), strict=True):
        ends = (found[at] or ScoredSteps((), ())).ends
        found[at] = None if row.failed else ScoredSteps(ends, row.scores)
    return found


def _item(scorer: StepScorer, problem: Problem, text: str) -> StepItem | None:
    """A solution with its steps; None where it has no words."""
    if not text.strip():
        return None
    return StepItem(problem, step_texts(text, spans_of(scorer, text)))


def _rollout(sample: Sample) -> Rollout:
    ids = sample.ids or ()
    prompt = Prompt(sample.to_item().problem, (), sample.prompt)
    return Rollout(
        prompt, sample.k, ids, (0.0,) * len(ids), sample.finish or "stop", sample.completion, 0
    )


def score_file(
    source: str, out: Path, scorer: StepScorer, how: str, on_progress: Progress | None = None
) -> Scoring:
    """Step scores of the rows of a file, as rows of another, in the same order.

    A row holds ``problem`` and either ``steps`` or a solution in one text (``completion``,
    ``response``, ``output``, ``solution``). To its columns come ``line``, ``steps``,
    ``step_scores``, ``score`` (made of them by ``how``), ``aggregation`` and ``scorer``. Of a
    scorer of whole solutions the last step has the score. Stopped at any moment, the same call goes
    on where it was; rows on which the scorer failed are not in the output, and are asked again.

    Args:
        source: JSON lines, parquet, csv, a JSON list or a hub id.
        out: JSON lines.
        scorer: what scores.
        how: the aggregation, see `stepmark.prm.AGGREGATIONS`.
        on_progress: see `Progress`.

    Raises:
        UnknownNameError: there is no such aggregation.
        DataError: the file cannot be read, or the scorer gives no score per step.
        RunError: ``out`` was made of another file or by another scorer.
        VerifierError: the scorer raised.
    """
    if how not in AGGREGATIONS:
        raise UnknownNameError.of("aggregation", how, AGGREGATIONS)
    rows, tell = Source(source), on_progress or (lambda done, total: None)
    earlier = {row["line"]: row for row in _earlier(out, scorer.key, how)}
    rejects: list[str] = []
    scores = [scores_of_solution(scorer, row["step_scores"]) for row in earlier.values()]
    gone = set(earlier)
    fresh = failed = 0
    for block in _blocks(_solutions(rows, scorer, rejects)):
        new = [one for one in block if not _is_known(one, earlier, out)]
        gone.difference_update(line for line, _, _ in block)
        found = answers(scorer, [item for _, _, item in new])
        made = [
            _out_row(line, row, item, given.scores, scorer, how)
            for (line, row, item), given in zip(new, found, strict=True)
            if not given.failed
        ]
        out.parent.mkdir(parents=True, exist_ok=True)
        append_rows(out, made)
        scores += [scores_of_solution(scorer, row.scores) for row in found if not row.failed]
        fresh, failed = fresh + len(made), failed + len(new) - len(made)
        tell(rows.done, rows.size)
    if gone:
        raise RunError(
            f"{str(out)!r} holds scores of another file: line {min(gone)} of {source!r} holds no "
            "solution now. Choose another --out."
        )
    _put_in_order(out)
    if not scores and not failed:
        why = f" The first: {rejects[0]}." if rejects else ""
        raise DataError(f"{source!r} holds no solution that can be scored.{why}")
    return _summary(scorer.key, scores, fresh)._replace(
        rejected=len(rejects), first_reject=rejects[0] if rejects else "", failed=failed
    )


def _put_in_order(out: Path) -> None:
    """Rows that were asked again stand at the end: move them to their places."""
    rows = read_rows(out)
    in_order = sorted(rows, key=lambda row: row["line"])
    if rows != in_order:
        with publish(out) as part:
            append_rows(part, in_order)


Solution = tuple[int, Mapping[str, Any], StepItem]


class NoSolution(ValueError):
    """Why a row holds no solution that can be scored."""


def _solutions(rows: Source, scorer: StepScorer, rejects: list[str]) -> Iterator[Solution]:
    """The solutions of a file by line; why a row is none goes to the rejects."""
    for line, row in rows.rows():
        try:
            if isinstance(row, Rejected):
                raise row
            yield line, row, _read(row, scorer)
        except (Rejected, NoSolution) as why:
            rejects.append(f"line {line}: {why}")


def _read(row: Mapping[str, Any], scorer: StepScorer) -> StepItem:
    text = row.get("problem")
    for column in sorted(set(getattr(scorer, "columns", ())) - row.keys()):
        raise NoSolution(f"it lacks the column {column}, which {scorer.key} needs")
    if not isinstance(text, str):
        raise NoSolution("it has no text in the column problem")
    gold = row.get("gold")
    given = row.get("problem_id") or row.get("id")
    problem = Problem(
        str(given or problem_id(text)), text, gold if isinstance(gold, str) else None, meta=row
    )
    steps = row.get("steps")
    if steps is None:
        whole = next((row[name] for name in TEXTS if isinstance(row.get(name), str)), "")
        item = _item(scorer, problem, whole)
    else:
        is_texts = isinstance(steps, list) and all(isinstance(step, str) for step in steps)
        if not is_texts or not all(step.strip() for step in steps):
            raise NoSolution(f"steps is {steps!r:.60}; it must be a list of texts, none blank")
        item = StepItem(problem, tuple(steps)) if steps else None
    if item is None:
        raise NoSolution(f"it has no steps, and no solution in {', '.join(TEXTS)}")
    return item


def _digest(problem: str, steps: Iterable[str]) -> str:
    return text_hash(json.dumps([problem, *steps]))


def _is_known(solution: Solution, earlier: Mapping[int, Mapping[str, Any]], out: Path) -> bool:
    line, _, item = solution
    if line not in earlier:
        return False
    was = earlier[line]
    if _digest(was["problem"], was["steps"]) != _digest(item.problem.text, item.steps):
        raise RunError(
            f"{str(out)!r} holds scores of another file: its row of line {line} has another "
            "problem or other steps than that line has now. Choose another --out."
        )
    return True


def _earlier(out: Path, key: str, how: str) -> list[dict[str, Any]]:
    rows = read_rows(out)
    for row in rows:
        was = (row.get("scorer"), row.get("aggregation"))
        if was != (key, how) or "line" not in row:
            raise RunError(
                f"{str(out)!r} exists and holds rows of the scorer {was[0]!r}, aggregated by "
                f"{was[1]!r}; now they would be of {key!r} by {how!r}. Choose another --out."
            )
    return rows


def _out_row(
    line: int,
    row: Mapping[str, Any],
    item: StepItem,
    scores: tuple[float | None, ...],
    scorer: StepScorer,
    how: str,
) -> dict[str, Any]:
    return {
        **row,
        "line": line,
        "steps": list(item.steps),
        "step_scores": list(scores),
        "score": aggregate(scores_of_solution(scorer, scores), how),
        "aggregation": how,
        "scorer": scorer.key,
    }


def _summary(key: str, rows: Sequence[Sequence[float | None]], fresh: int) -> Scoring:
    every = [score for row in rows for score in row]
    known = [score for score in every if score is not None]
    mean = sum(known) / len(known) if known else None
    return Scoring(key, len(rows), fresh, len(every), len(every) - len(known), mean)
