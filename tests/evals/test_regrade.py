"""Recorded responses of any layout, marked again beside what was recorded with them."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepmark.errors import ConfigError, DataError, RunError
from stepmark.evals import Columns, regrade, run
from stepmark.protocols import OutcomeVerifier
from stepmark.store import read_rows
from stepmark.types import Sampling

ROWS = [
    {"id": "a", "response": "The answer is 18.", "gold": "18", "model": "m1", "is_correct": True},
    {"id": "b", "response": "The answer is 17.", "gold": "18", "model": "m1", "is_correct": True},
    {"id": "a", "response": "The answer is 18.", "gold": "18", "model": "m2", "is_correct": False},
    {"id": "b", "response": "I do not know.", "gold": "18", "model": "m2", "is_correct": False},
    {"id": "c", "response": "The answer is 3.", "gold": None, "model": "m2", "is_correct": True},
]


def jsonl(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_each_group_has_both_accuracies_and_its_disagreements(
    math: OutcomeVerifier, tmp_path: Path
) -> None:
    found = regrade(jsonl(tmp_path / "f.jsonl", ROWS), math, tmp_path / "out")
    one, two = found.groups
    assert (one.name, one.rows, one.recorded, one.result.accuracy) == ("m1", 2, 1.0, 0.5)
    assert (one.only_recorded, one.only_ours, one.no_verdict) == (1, 0, 0)
    assert (two.recorded, two.result.accuracy) == (1 / 3, 1 / 3)
    assert (two.only_recorded, two.only_ours, two.no_verdict) == (0, 1, 1)
    assert (two.result.abstains, two.result.accuracy_upper) == (1, 2 / 3)
    assert found.disagreements == 3
    rows = read_rows(tmp_path / "out" / "disagreements.jsonl")
    assert [(row["group"], row["id"]) for row in rows] == [("m1", "b"), ("m2", "a"), ("m2", "c")]
    assert rows[0]["extracted"] == "17"
    assert {"gold", "reason", "rule", "label", "completion"} <= rows[0].keys()
    verdicts = read_rows(tmp_path / "out" / "verdicts.jsonl")
    contract = ["id", "k", "correct", "score", "status", "reason", "extracted", "gold"]
    assert list(verdicts[0])[: len(contract)] == contract
    assert len(verdicts) == 5
    assert not (tmp_path / "out" / "rejects.jsonl").exists()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["disagreements"] == 3


def test_unreadable_rows_are_set_aside_with_line_and_reason(
    math: OutcomeVerifier, tmp_path: Path
) -> None:
    path = tmp_path / "f.jsonl"
    bad = ['{"id": "x", "resp', "[1]", '{"id": "y", "response": 5, "gold": "1"}']
    path.write_text("\n".join([json.dumps(ROWS[0]), *bad, "", json.dumps(ROWS[1])]))
    found = regrade(str(path), math, tmp_path / "out")
    rejects = read_rows(tmp_path / "out" / "rejects.jsonl")
    assert [row["line"] for row in rejects] == [2, 3, 4]
    assert "not a text" in rejects[2]["reason"]
    assert (found.rejects, found.groups[0].rows) == (3, 2)


def test_lists_become_places_in_a_group(math: OutcomeVerifier, tmp_path: Path) -> None:
    rows = [
        {"doc_id": 7, "resps": [["The answer is 2"], ["The answer is 3"]], "target": "2"},
        {"doc_id": 8, "resps": ["The answer is 3"], "target": ["3"]},
    ]
    found = regrade(jsonl(tmp_path / "f.jsonl", rows), math, tmp_path / "out")
    verdicts = read_rows(tmp_path / "out" / "verdicts.jsonl")
    assert [(v["id"], v["k"], v["correct"]) for v in verdicts] == [
        ("7", 0, True),
        ("7", 1, False),
        ("8", 0, True),
    ]
    assert (found.groups[0].result.n, found.groups[0].result.accuracy) == (2, 0.75)


def test_rows_without_ids_are_named_by_their_line(math: OutcomeVerifier, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["completion", "answer"], ["The answer is 4", "4"], ["Answer: 5", "4"]]
        )
    regrade(str(path), math, tmp_path / "out")
    assert [row["id"] for row in read_rows(tmp_path / "out" / "verdicts.jsonl")] == [
        "line-2",
        "line-3",
    ]


def test_the_first_name_is_never_ambiguous_and_others_are(
    math: OutcomeVerifier, tmp_path: Path
) -> None:
    row = {"completion": "The answer is 1", "output": "x", "ground_truth": "1", "answer": "2"}
    path = jsonl(tmp_path / "f.jsonl", [row])
    with pytest.raises(DataError, match="several candidates for the gold: ground_truth, answer"):
        regrade(path, math, tmp_path / "out")
    found = regrade(path, math, tmp_path / "out", columns=Columns(gold="ground_truth"))
    assert found.groups[0].result.accuracy == 1
    assert "completion from 'completion', gold from 'ground_truth'" in found.announcement


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ([{"text": "x", "gold": "1"}], Columns(), "no column that is known to hold the completion"),
        (ROWS, Columns(gold="golds"), "Did you mean 'gold'"),
        ([{"response": 1, "gold": "1"}], Columns(), "no row that can be marked"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_written(
    math: OutcomeVerifier, tmp_path: Path, rows: list[Any], columns: Columns, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        regrade(jsonl(tmp_path / "f.jsonl", rows), math, tmp_path / "out", columns=columns)
    assert [path.name for path in tmp_path.iterdir()] == ["f.jsonl"]


def test_a_verifier_that_asks_for_a_column_gets_it_or_is_refused(tmp_path: Path) -> None:
    from stepmark.verifiers import load_verifier

    (tmp_path / "own.py").write_text(
        "def check(completion, gold, unit):\n    return unit == 'cm'\n"
    )
    own = load_verifier(f"{tmp_path / 'own.py'}:check")
    with pytest.raises(ConfigError, match="unit"):
        regrade(jsonl(tmp_path / "f.jsonl", ROWS), own, tmp_path / "out")
    rows = [row | {"unit": "cm"} for row in ROWS]
    found = regrade(jsonl(tmp_path / "g.jsonl", rows), own, tmp_path / "out")
    assert found.groups[0].result.accuracy == 1


def test_an_earlier_regrade_is_replaced_and_nothing_else(
    math: OutcomeVerifier, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "f.jsonl", ROWS)
    regrade(path, math, tmp_path / "out")
    before = (tmp_path / "out" / "verdicts.jsonl").read_bytes()
    regrade(path, math, tmp_path / "out")
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    with pytest.raises(RunError, match="not empty"):
        regrade(path, math, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes").read_text() == "keep"


def test_a_run_is_marked_again_without_an_engine(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    from stepmark.verifiers import load_verifier

    engine, place = fake.FakeEngine(fake.right_below(5)), tmp_path / "r"
    task = fake.sums(8)
    result = run(
        engine, fake.FakeTokenizer(), task, math, Sampling(0.0, 40), out=place, model="fake"
    )
    found = regrade(place, load_verifier("exact"), tmp_path / "out")
    assert found.groups[0].recorded == result.accuracy
    assert found.groups[0].rows == 8


AUTHORS = {
    "6b_finetuning": 21.7,
    "6b_verification": 39.0,
    "175b_finetuning": 34.7,
    "175b_verification": 56.3,
}


@pytest.mark.slow
def test_the_accuracies_of_the_authors_of_gsm8k_are_found(
    math: OutcomeVerifier, data: Path, tmp_path: Path
) -> None:
    started = time.process_time()
    source = data / "recorded" / "responses_gsm8k_openai.jsonl"
    found = regrade(source, math, tmp_path / "out")
    assert time.process_time() - started < 10
    assert sum(group.rows for group in found.groups) == 5276
    assert {g.name: round(100 * (g.recorded or 0), 1) for g in found.groups} == AUTHORS
    listed = read_rows(tmp_path / "out" / "disagreements.jsonl")
    assert len(listed) == found.disagreements
    for group in found.groups:
        assert group.disagreements <= 0.01 * group.rows, group.name
