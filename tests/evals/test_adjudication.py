"""What people decided takes the place of labels, and what that changed is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import DataError
from stepmark.evals import Regrade, read_adjudications, regrade
from stepmark.protocols import OutcomeVerifier
from stepmark.store import read_rows

ROWS = [
    {"id": "a", "response": "The answer is 18.", "gold": "18", "is_correct": False},
    {"id": "b", "response": "The answer is 17.", "gold": "18", "is_correct": True},
    {"id": "c", "response": "The answer is 17.", "gold": "18", "is_correct": True},
    {"id": "d", "response": "The answer is 18.", "gold": "18", "is_correct": True},
]


def decided(tmp_path: Path, rows: list[Any], math: OutcomeVerifier) -> Regrade:
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = tmp_path / "words.jsonl"
    words.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return regrade(
        tmp_path / "f.jsonl", math, tmp_path / "out", adjudications=read_adjudications(words)
    )


def test_the_last_word_is_the_label_and_changes_are_listed(
    math: OutcomeVerifier, tmp_path: Path
) -> None:
    rows = [
        {"id": "a", "k": 0, "correct": False, "note": ""},
        {"id": "a", "k": 0, "correct": True, "note": "the same number"},
        {"id": "b", "k": 0, "correct": True, "note": ""},
        {"id": "c", "k": 0, "correct": None, "note": "?"},
    ]
    found = decided(tmp_path, rows, math)
    assert found.before == (("correct", 1, 1), ("wrong", 2, 0))
    assert found.square == [("correct", 2, 0), ("wrong", 1, 0)]
    assert [
        (row["id"], row["was"], row["now"]) for row in read_rows(found.out / "changes.jsonl")
    ] == [
        ("a", False, True),
        ("c", True, None),
    ]
    assert [row["id"] for row in read_rows(found.out / "disagreements.jsonl")] == ["b"]
    assert found.adjudicated is not None
    told = found.adjudicated.told(found.rows, "math@1")
    assert "3 rows, 1 unsure. Of 2 decided, math@1 had 1 right and recorded 1" in told


def test_groups_tell_equal_ids_apart(math: OutcomeVerifier, tmp_path: Path) -> None:
    rows = [ROWS[0] | {"model": name} for name in ("x", "y")]
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = tmp_path / "words.json"
    for content, changed in (
        ([{"id": "a", "k": 0, "correct": "right", "group": "y"}], ["y"]),
        ([{"id": "a", "k": 0, "correct": "right"}], None),
    ):
        words.write_text(json.dumps(content))
        known = read_adjudications(words)
        if changed is None:
            with pytest.raises(DataError, match="names a row of this file"):
                regrade(tmp_path / "g.jsonl", math, tmp_path / "o", adjudications=known)
        else:
            regrade(tmp_path / "g.jsonl", math, tmp_path / "o", adjudications=known)
            assert [r["group"] for r in read_rows(tmp_path / "o" / "changes.jsonl")] == changed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": "a", "correct": "maybe"}', "row 1.*true, false or null"),
        ('{"id": "a"}', "row 1"),
        ("[", "line 1: not JSON"),
        ('{"id": "z", "k": 3, "correct": true}', "The first is 'z', k 3"),
    ],
)
def test_what_is_no_adjudication_is_named(
    text: str, words: str, math: OutcomeVerifier, tmp_path: Path
) -> None:
    (tmp_path / "w.jsonl").write_text(text + "\n")
    (tmp_path / "f.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(DataError, match=words):
        regrade(
            tmp_path / "f.jsonl",
            math,
            tmp_path / "out",
            adjudications=read_adjudications(tmp_path / "w.jsonl"),
        )
    assert not (tmp_path / "out").exists()
