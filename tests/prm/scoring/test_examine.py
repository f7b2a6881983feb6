"""Checkpoints examined: what they were trained on, steps beyond their limit, known files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stepmark.errors import ConfigError
from stepmark.prm import PrmScorer, load_scorer, write_labelled_steps
from stepmark.prm.eval_report import figures_of, read_report, to_row, write_report
from stepmark.prm.eval_rows import read_eval_rows
from stepmark.prm.eval_scores import SCORES
from stepmark.prm.eval_table import table_text
from stepmark.prm.evaluate import evaluate, score_rows
from stepmark.prm.examine import Examination, examine
from stepmark.prm.places import folder_digest
from stepmark.prm.published_figures import PUBLISHED, recognise
from stepmark.prm.splits import write_problems
from stepmark.store import read_rows
from stepmark.tasks import load_task
from stepmark.types import LabelledSteps, Problem, StepItem, StepScores

Checkpoint = Callable[..., Path]


def solution(number: int, wrong: int, steps: int = 3) -> LabelledSteps:
    labels = tuple(float(place != wrong) for place in range(steps))
    texts = tuple(f"{number} + {n} = {number + n}" for n in range(steps))
    problem = Problem(f"p{number}", f"What is {number} and more?", None)
    return LabelledSteps(problem, texts, labels, final_correct=wrong < 0)


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [solution(n, n % 4 - 1) for n in range(24)]
    write_labelled_steps(tmp_path / "rows.jsonl", rows)
    return str(tmp_path / "rows.jsonl")


def test_a_checkpoint_is_examined_with_and_without_what_it_was_trained_on(
    checkpoint: Checkpoint, file: str
) -> None:
    place = checkpoint(aggregation="last")
    write_problems(place, [f"What is {n} and more?" for n in range(6)])
    rows = read_eval_rows(file)
    report = examine({"ours": PrmScorer(place, device="cpu")}, [rows], Examination(0.45))
    [record] = report.records
    assert record.aggregation == "last", "the checkpoint says so"
    assert (record.trained_on, record.rows) == (6, 24)
    scored = list(score_rows(PrmScorer(place, device="cpu"), rows.rows[6:]))
    expected = evaluate(scored, name="rows", scorer="x", threshold=0.45, aggregation="last")
    assert record.unseen == figures_of(expected)
    text = table_text(report)
    assert "| ours, unseen problems" in text
    assert "trained on the problems of 6 of 24 rows" in text


def test_a_checkpoint_that_does_not_say_what_it_was_trained_on_is_told(
    checkpoint: Checkpoint, file: str
) -> None:
    place = checkpoint(template="{problem}\n\n")
    report = examine({"ours": PrmScorer(place, device="cpu")}, [read_eval_rows(file)])
    assert report.records[0].trained_on is None
    assert "it does not say which problems it was trained on" in table_text(report)
    rule = examine({"rule": load_scorer("arithmetic")}, [read_eval_rows(file)])
    assert "trained on" not in table_text(rule)


def test_steps_beyond_the_limit_are_told(checkpoint: Checkpoint, file: str) -> None:
    place = checkpoint(max_tokens=40)
    report = examine({"ours": PrmScorer(place, device="cpu")}, [read_eval_rows(file)])
    [record] = report.records
    assert record.unscored_steps > 0
    assert record.figure("outcome_auroc").n < 24
    assert "steps lie beyond its limit and have no score" in table_text(report)


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path, file: str) -> None:
    report = examine({"arithmetic": load_scorer("arithmetic")}, [read_eval_rows(file)])
    write_report(tmp_path, report)
    assert read_report(tmp_path) == report
    assert to_row(read_report(tmp_path)) == to_row(report)


def test_a_limit_takes_the_same_rows_in_their_order(file: str) -> None:
    some = read_eval_rows(file, limit=7)
    assert len(some.rows) == 7
    assert some.of_rows == 24
    assert some == read_eval_rows(file, limit=7)
    places = [int(row.problem.text.split()[2]) for row in some.rows]
    assert places == sorted(places)
    assert places != list(range(7))
    assert all(row in read_eval_rows(file, limit=12).rows for row in some.rows)


def test_the_published_rows_have_an_f1_per_subset_and_a_source() -> None:
    assert len({row.model for row in PUBLISHED}) == len(PUBLISHED)
    for row in PUBLISHED:
        assert all(0 < value < 100 for value in row.f1)
        assert row.source.startswith("arXiv:")


def test_every_processbench_file_is_known_and_nothing_else(data: Path) -> None:
    for subset in ("gsm8k", "math", "olympiadbench"):
        rows = read_eval_rows(str(data / "processbench" / f"processbench_{subset}.jsonl"))
        assert rows.subset == subset
        assert rows.name == f"processbench-{subset}"
        assert recognise(rows.rows[1:]) is None
        assert recognise([*rows.rows[1:], rows.rows[1]]) is None


class Flaky:
    """Knows every first error, and fails on some problems while it is in trouble."""

    key = "flaky@1"

    def __init__(self) -> None:
        self.in_trouble, self.asked = True, list[str]()

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return ((0, len(text)),)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        self.asked += [item.problem.id for item in items]
        return [self._one(item) for item in items]

    def _one(self, item: StepItem) -> StepScores:
        number = int(item.steps[0].split()[0])
        if self.in_trouble and number < 4:
            return StepScores((None,) * len(item.steps), self.key, failed=True)
        wrong = number % 4 - 1
        scores = (0.1 if place == wrong else 0.9 for place in range(len(item.steps)))
        return StepScores(tuple(scores), self.key)


def test_solutions_on_which_a_scorer_failed_are_missed_and_asked_again(
    tmp_path: Path, file: str
) -> None:
    scorer, rows, folder = Flaky(), read_eval_rows(file), tmp_path / "found"
    report = examine({"flaky": scorer}, [rows], folder=folder)
    [record] = report.records
    assert (record.failed_rows, record.unscored_steps, len(scorer.asked)) == (4, 0, 24)
    assert record.figure("error_accuracy").value == pytest.approx(15 / 18)
    assert record.figure("correct_accuracy").value == pytest.approx(5 / 6)
    assert "it failed on 4 solutions, which count as missed" in table_text(report)
    assert "beyond its limit" not in table_text(report)
    assert len(read_rows(folder / SCORES)) == 20
    scorer.in_trouble = False
    [record] = examine({"flaky": scorer}, [rows], folder=folder).records
    assert len(scorer.asked) == 28, "only the four are asked again"
    assert (record.failed_rows, record.figure("processbench_f1").value) == (0, 1.0)
    assert len(read_rows(folder / SCORES)) == 24


def test_a_scorer_that_needs_a_column_is_given_that_of_the_file(tmp_path: Path) -> None:
    problems = load_task("arith?size=4", "test").problems
    rows = [
        LabelledSteps(
            Problem(str(n), one.text, one.gold),
            tuple(one.meta["steps"][:-1]) if n % 2 else ("answer: -1",),
            (1.0,) * one.meta["n_steps"] if n % 2 else (0.0,),
            meta={"moves": one.meta["moves"]},
        )
        for n, one in enumerate(problems)
    ]
    truth, full, bare = load_scorer("arith-steps"), tmp_path / "full.jsonl", tmp_path / "bare.jsonl"
    write_labelled_steps(full, rows)
    found = examine({"truth": truth}, [read_eval_rows(str(full))])
    assert found.records[0].figure("processbench_f1").value == 1.0
    write_labelled_steps(bare, [replace(row, meta={}) for row in rows])
    with pytest.raises(ConfigError, match="needs the column 'moves'"):
        examine({"truth": truth}, [read_eval_rows(str(bare))])


def test_the_key_of_a_model_changes_with_each_file_that_shapes_a_score(tmp_path: Path) -> None:
    keys = {folder_digest(tmp_path)}
    names = (
        "tokenizer.json", "merges.txt", "chat_template.jinja", "model.safetensors",
        "added_tokens.json", "special_tokens_map.json", "spiece.model", "adapter_config.json",
    )  # fmt: skip
    for name in names:
        for text in ("one", "two"):
            (tmp_path / name).write_text(text)
            keys.add(folder_digest(tmp_path))
    assert len(keys) == 1 + 2 * len(names)
