"""Golds from a task: joined by id, place or question; what does not join is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import DataError
from stepmark.evals import Recording, join_golds, load_golds, read_recorded

TASK = [
    {"id": "t1", "question": "Tom has 3 apples and eats one. How many are left?", "answer": "2"},
    {"id": "t2", "question": "Ann’s 5 pears and 2 more: how many pears?", "answer": "7"},
    {"id": "t3", "question": "What is x?", "answer": "1"},
    {"id": "t4", "question": "What is x?", "answer": "2"},
]


def joined(tmp_path: Path, rows: list[dict[str, Any]], column: str) -> Recording:
    for name, content in (("task.jsonl", TASK), ("rows.jsonl", rows)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    recording = read_recorded(str(tmp_path / "rows.jsonl"), needs_gold=False)
    return join_golds(recording, load_golds(str(tmp_path / "task.jsonl")), column)


def golds(found: Recording) -> list[str | None]:
    return [row.sample.gold for row in found.rows]


def test_ids_join_and_unknown_ones_are_rejects(tmp_path: Path) -> None:
    rows = [{"id": id, "response": "2"} for id in ("t2", "t9", "t1")]
    found = joined(tmp_path, rows, "id")
    assert golds(found) == ["7", "2"]
    assert [(one.line, "'t9'" in one.reason) for one in found.rejects] == [(2, True)]
    assert "'id' being its id: 2 of 3 rows" in found.announcement
    assert found.rows[0].sample.problem == TASK[1]["question"]


def test_places_join_from_0(tmp_path: Path) -> None:
    found = joined(tmp_path, [{"idx": n, "response": "2"} for n in (1, 0, 4)], "idx")
    assert golds(found) == ["7", "2"]
    assert "place" in found.rejects[0].reason


def test_a_row_that_asks_something_else_is_not_joined_by_its_place(tmp_path: Path) -> None:
    rows = [{"idx": n, "question": TASK[n]["question"], "response": "2"} for n in (0, 1)]
    shifted = [rows[0], rows[1] | {"idx": 0}]
    found = joined(tmp_path, shifted, "idx")
    assert golds(found) == ["2"]
    assert "asks" in found.rejects[0].reason


def test_questions_are_found_in_prompts_and_the_last_one_counts(tmp_path: Path) -> None:
    few_shot = f"Q: {TASK[0]['question']}\nA: 2\nQ:   Ann's 5 pears and 2 more: how many pears?\nA:"
    rows = [{"prompt": few_shot, "response": "7"}, {"prompt": TASK[0]["question"], "response": "2"}]
    found = joined(tmp_path, rows, "prompt")
    assert golds(found) == ["7", "2"]


def test_one_question_with_two_golds_joins_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": TASK[n]["question"], "response": "2"} for n in (0, 2)]
    found = joined(tmp_path, rows, "prompt")
    assert golds(found) == ["2"]
    assert "other golds" in found.rejects[0].reason


def test_nothing_joined_says_what_both_sides_look_like(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)holds 'zz'.*task/t1"):
        joined(tmp_path, [{"id": "zz", "response": "2"}], "id")
    with pytest.raises(DataError, match="Did you mean 'id'"):
        joined(tmp_path, [{"id": "t1", "response": "2"}], "idd")


def test_a_task_is_named_with_settings_and_split(tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_text('{"question": "1+1?", "answer": "so\\n#### 2"}\n')
    task = load_golds(f"gsm8k?path={tmp_path / 'g.jsonl'}&split=train")
    assert (task.split, task.problems[0].gold) == ("train", "2")
