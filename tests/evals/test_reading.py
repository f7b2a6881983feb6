"""Comparisons, tables and single completions of finished runs."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepmark.errors import RunError
from stepmark.evals import (
    Comparison,
    compare,
    find_runs,
    read_result,
    run,
    show,
    table,
    table_json,
)
from stepmark.protocols import OutcomeVerifier
from stepmark.statistics import mcnemar_exact, paired_means, paired_shares
from stepmark.types import Sampling

GREEDY, SAMPLED = Sampling(0.0, 40), Sampling(1.0, 40)


@pytest.fixture(scope="module")
def runs(
    fake: ModuleType, math: OutcomeVerifier, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")

    def make(name: str, answer: Any, sampling: Sampling = GREEDY, **given: Any) -> None:
        task = given.pop("task", fake.sums(30))
        engine = fake.FakeEngine(answer)
        out = base / name
        run(engine, fake.FakeTokenizer(), task, math, sampling, out=out, model=name, **given)

    make("good", fake.right_below(20))
    make("poor", fake.right_below(8))
    make("fewer", fake.right_below(20), limit=10)
    make("renamed", fake.right_below(20), task=fake.sums(30, "others"))
    make("mixed", fake.mixed, SAMPLED, n=4)
    make("mixed2", fake.mixed, SAMPLED, n=4, seed=1)
    return {path.name: path for path in base.iterdir()}


def test_greedy_runs_are_compared_by_mcnemars_exact_test(runs: dict[str, Path]) -> None:
    found = compare(runs["good"], runs["poor"])
    assert (len(found.only_first), len(found.only_second)) == (10, 0)  # 8 to 18 without 9
    assert found.only_first == tuple(sorted(found.only_first))
    assert found.p == mcnemar_exact(10, 0)
    assert found.interval == paired_shares(8, 10, 0, 12).interval
    assert found.test == "McNemar exact"
    assert found.to_row()["n_only_first"] == 10


def test_a_comparison_turns_with_its_order(runs: dict[str, Path]) -> None:
    one, two = compare(runs["good"], runs["poor"]), compare(runs["poor"], runs["good"])
    assert (one.difference, one.p, one.only_first) == (-two.difference, two.p, two.only_second)


def test_sampled_runs_are_compared_by_the_means_of_problems(runs: dict[str, Path]) -> None:
    found = compare(runs["mixed"], runs["mixed2"])
    means: list[dict[str, list[float]]] = [{}, {}]
    for rows, name in zip(means, ("mixed", "mixed2"), strict=True):
        for sample, verdict in show(runs[name]):
            rows.setdefault(sample.id, []).append(float(verdict.correct is True))
    first, second = ([sum(rows[id]) / 4 for id in sorted(rows)] for rows in means)
    wanted = paired_means(first, second)
    assert (found.difference, found.p) == (wanted.difference, wanted.p)
    assert "paired t" in str(found)


def test_a_comparison_on_one_problem_has_no_p_and_no_bounds_and_is_json() -> None:
    found = paired_means([0.5], [0.25])
    row = Comparison("a", "b", 1, 0.5, 0.25, *astuple(found), "paired t", (), ()).to_row()
    assert (row["p"], row["interval"]) == (None, [None, None])
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize(
    ("other", "words"),
    [("fewer", "20 only in .*0 only in"), ("renamed", "30 only in .*30 only in .*0 in both")],
)
def test_runs_on_different_problems_are_refused_with_counts(
    runs: dict[str, Path], other: str, words: str
) -> None:
    with pytest.raises(RunError, match=words):
        compare(runs["good"], runs[other])


def test_runs_with_other_golds_or_verifiers_are_refused(
    fake: ModuleType, runs: dict[str, Path], tmp_path: Path
) -> None:
    from dataclasses import replace

    from stepmark.verifiers import load_verifier

    task = fake.sums(30)
    changed = replace(task, problems=tuple(replace(p, gold="1") for p in task.problems))
    engine, tokenizer = fake.FakeEngine(fake.right_below(3)), fake.FakeTokenizer()
    for name, rows, verifier in (("gold", changed, "math"), ("exact", task, "exact")):
        judge = load_verifier(verifier)
        run(engine, tokenizer, rows, judge, GREEDY, out=tmp_path / name, model=name)
    with pytest.raises(RunError, match="two texts or golds"):
        compare(runs["good"], tmp_path / "gold")
    with pytest.raises(RunError, match="marked by 'math@2' and 'exact@"):
        compare(runs["good"], tmp_path / "exact")


def test_the_table_says_what_is_needed_to_read_an_accuracy(runs: dict[str, Path]) -> None:
    text = table([runs["good"], runs["mixed"]])
    assert text == table([runs["good"], runs["mixed"]])
    lines = text.splitlines()
    for word in ("n", "no answer", "truncated", "tokens", "prompt", "95 %"):
        assert word in lines[0]
    assert "mean@4" in text
    assert "Verifier: math@2" in text
    assert "temperature 1, seed 0" in text
    result = read_result(runs["good"])
    assert f"plain@{result.about.prompt_hash[:8]}" in text
    row = table_json([result])["rows"][0]
    assert (row["accuracy"], row["low"], row["n"]) == (result.accuracy, result.low, 30)
    json.dumps(row, allow_nan=False)


def test_runs_are_found_in_a_folder_of_runs(runs: dict[str, Path], tmp_path: Path) -> None:
    base = runs["good"].parent
    assert find_runs([base]) == sorted(runs.values())
    assert find_runs([runs["poor"], base])[0] == runs["poor"]
    with pytest.raises(RunError, match="no evaluation in"):
        find_runs([tmp_path])


def test_a_summary_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"kind": "regrade"}')
    with pytest.raises(RunError, match="not the summary of an evaluation"):
        read_result(tmp_path)


def test_show_gives_what_was_asked_for(runs: dict[str, Path]) -> None:
    wrong = show(runs["good"], wrong=True)
    assert {verdict.correct for _, verdict in wrong} == {False}
    assert len(wrong) == 12
    assert len(show(runs["good"], wrong=True, limit=2)) == 2
    assert [sample.k for sample, _ in show(runs["mixed"], id="sums/3")] == [0, 1, 2, 3]
    with pytest.raises(RunError, match="Did you mean 'sums/3'"):
        show(runs["good"], id="sum/3")


def test_a_folder_of_runs_gives_its_evaluations_and_passes_over_training(tmp_path: Path) -> None:
    from stepmark.evals import find_runs
    from stepmark.store import RunFolder

    for name, kind in (("a", "eval"), ("b", None), ("c", "eval")):
        config = {"seed": 0} | ({"kind": kind} if kind else {})
        RunFolder.create(tmp_path / name, config, {})
    assert find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "c"]


def test_an_empty_file_says_so_and_nested_responses_are_found() -> None:
    from stepmark.errors import DataError
    from stepmark.evals.recorded import Columns, find_columns

    with pytest.raises(DataError, match="no rows"):
        find_columns([], Columns())
    found, said = find_columns(["id", "gold", "responses", "preds"], Columns())
    assert found.completion == "responses"
    assert "completion from 'responses'" in said
