"""Real files give the counts that were published or counted elsewhere, label for label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.prm.formats import Conversion, convert_file, labelled_steps


def counts(found: Conversion) -> tuple[int, int, int]:
    return (found.labels["right"], found.labels["wrong"], found.labels["masked"])


@pytest.fixture
def converted(data: Path, tmp_path: Path) -> Any:
    def converting(file: str, **settings: Any) -> Conversion:
        return convert_file(str(data / file), tmp_path / "rows.jsonl", **settings)

    return converting


@pytest.mark.parametrize(
    ("subset", "rows", "labels"),
    [
        ("gsm8k", 400, (1361, 207, 514)),
        ("math", 1000, (3772, 594, 2139)),
        ("olympiadbench", 1000, (5161, 661, 2997)),
    ],
)
def test_processbench(converted: Any, subset: str, rows: int, labels: Any) -> None:
    found = converted(f"processbench/processbench_{subset}.jsonl")
    assert (found.format, found.rows, found.distinct) == ("processbench", rows, rows)
    assert counts(found) == labels
    assert not found.rejects


def test_processbench_right_answers_with_a_wrong_step(converted: Any, tmp_path: Path) -> None:
    """3.5 % and 18.8 % of right answers hold an error (ProcessBench, table 2)."""
    for subset, share in (("gsm8k", 0.035), ("math", 0.188)):
        converted(f"processbench/processbench_{subset}.jsonl")
        right = [row for row in labelled_steps(tmp_path / "rows.jsonl") if row.final_correct]
        wrong = sum(row.first_error != -1 for row in right)
        assert wrong / len(right) == pytest.approx(share, abs=5e-4)


def test_math_shepherd(converted: Any) -> None:
    found = converted("prm_samples/sample_math_shepherd_raw.jsonl")
    assert (found.format, found.rows, found.distinct) == ("math-shepherd", 7, 7)
    assert counts(found) == (5, 20, 0)
    assert not found.rejects


def test_prm800k_with_every_rated_completion_as_a_prefix_row(converted: Any) -> None:
    found = converted("prm800k/prm800k_phase1_test.jsonl", alternatives="prefix")
    assert (found.format, found.rows_in, found.rows) == ("prm800k", 106, 5082)
    assert found.distinct == 4594
    assert counts(found) == (70459, 1970, 0)
    assert found.last_labels == {"right": 3112, "wrong": 1970}
    assert found.left_out == {"unrated": 110}


def test_prm800k_with_every_rating_once(converted: Any) -> None:
    """The last steps of branches and the steps of trajectories are the ratings and no more."""
    found = converted("prm800k/prm800k_phase1_test.jsonl")
    ratings, written_by_people = 2245 + 867, 254
    assert counts(found)[:2] == (ratings + written_by_people, 1970)
    assert found.rows == 103 + (5082 - 1603)
    masked = converted("prm800k/prm800k_phase1_test.jsonl", neutral="mask", human="mask")
    assert counts(masked)[:2] == (2245, 1970)
    assert masked.left_out["neutral"] == 867


@pytest.mark.slow
def test_prm800k_train_with_prefix_rows(converted: Any) -> None:
    found = converted("prm800k/prm800k_phase1_train_plus.jsonl", alternatives="prefix")
    assert (found.rows, found.distinct) == (48672, 42798)
    assert counts(found) == (767888, 19656, 0)
    assert found.last_labels == {"right": 29016, "wrong": 19656}


def test_prm800k_of_both_phases_in_the_published_layout(converted: Any) -> None:
    file = "prm_samples/sample_prm800k_raw.jsonl"
    assert converted(file).left_out["screening"] == 1
    kept = converted(file, screening="keep", alternatives="prefix")
    assert (kept.rows_in, kept.rows) == (6, 73)
    assert kept.last_labels == {"right": 58, "wrong": 15}
    first = converted(file, screening="keep", phase=1)
    second = converted(file, screening="keep", phase=2)
    assert (first.left_out["other_phase"], second.left_out["other_phase"]) == (2, 4)


def test_math_aps_trees(converted: Any) -> None:
    found = converted("prm_samples/sample_math_aps_tree_raw.jsonl", labels="hard")
    assert (found.format, found.rows_in, found.rows) == ("math-aps", 3, 242)
    assert found.distinct == 159
    assert counts(found) == (616, 8, 0)


def test_math_aps_lists_hold_conflicting_estimates(converted: Any) -> None:
    file = "prm_samples/sample_math_aps_raw.jsonl"
    assert converted(file).rejects == {"conflicting_labels": 3}
    found = converted(file, conflicts="mean")
    assert not found.rejects
    assert found.problems == 3


MADE = {
    "math_shepherd": ({"stray_tag": 1, "unlabelled_tail": 1}, 1),
    "prm800k": ({}, 3),
    "trl_stepwise": ({}, 2),
    "processbench": ({}, 2),
    "qwen_prm_chat": ({"no_labels": 1}, 0),
    "skywork": ({"no_labels": 2}, 0),
    "rlhflow": ({}, 1),
    "math_aps_tree": ({}, 2),
}


@pytest.mark.parametrize("name", MADE)
def test_the_made_samples_of_every_format(converted: Any, name: str) -> None:
    found = converted(f"prm_samples/{name}.jsonl")
    assert (found.rejects, found.rows) == MADE[name]


def words(problem: str, steps: Any, labels: Any) -> tuple[Any, ...]:
    blanks_apart = tuple(" ".join(text.split()) for text in (problem, *steps))
    return (blanks_apart, tuple(labels))


def test_rows_agree_with_those_of_another_converter(
    converted: Any, data: Path, tmp_path: Path
) -> None:
    """Problem, steps and labels are those of recorded rows that other code made."""
    lines = (data / "prm_samples/common_rows.jsonl").read_text().splitlines()
    ours: set[tuple[Any, ...]] = set()
    for file, settings in {
        "prm_samples/math_shepherd.jsonl": {},
        "prm_samples/prm800k.jsonl": {"alternatives": "prefix"},
        "prm_samples/processbench.jsonl": {},
        "prm_samples/rlhflow.jsonl": {},
        "prm_samples/math_aps_tree.jsonl": {"labels": "hard"},
        "prm_samples/sample_math_shepherd_raw.jsonl": {},
        "prm_samples/sample_prm800k_raw.jsonl": {"alternatives": "prefix"},
        "prm_samples/sample_math_aps_tree_raw.jsonl": {"labels": "hard"},
        "processbench/processbench_gsm8k.jsonl": {},
        "processbench/processbench_math.jsonl": {},
        "processbench/processbench_olympiadbench.jsonl": {},
    }.items():
        converted(file, **settings)
        rows = labelled_steps(tmp_path / "rows.jsonl")
        ours |= {words(row.problem.text, row.steps, row.labels) for row in rows}
    compared = [
        row
        for row in map(json.loads, lines)
        if row["source"] not in ("trl", "prmbench")
        and not row["meta"].get("orig", "").startswith("omnimath")
    ]
    assert len(compared) == 33
    for row in compared:
        assert words(row["problem"], row["steps"], row["labels"]) in ours
