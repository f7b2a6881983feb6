from __future__ import annotations

import gzip
import json
import logging
import math

import pytest

from stepmark.errors import DataError, SetupError
from stepmark.tasks import load_dataset_task, load_task, read_table
from stepmark.tasks.readers import split_place

ROWS = [
    {"question": "1 + 1?", "target": "2", "level": 1},
    {"question": "2 + 2?", "target": "4", "level": 2},
]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_all(folder):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    jsonl(folder / "a.jsonl", ROWS)
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    (folder / "c.json").write_text(json.dumps(ROWS))
    (folder / "d.csv").write_text("\ufeffquestion,target,level\n1 + 1?,2,1\n2 + 2?,4,2\n")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "e.parquet")
    return [folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.json", "d.csv", "e.parquet")]


def test_every_format_gives_the_same_problems(tmp_path):
    for path in write_all(tmp_path):
        loaded = load_dataset_task(str(path))
        assert [p.text for p in loaded.problems] == ["1 + 1?", "2 + 2?"], path
        assert [p.gold for p in loaded.problems] == ["2", "4"]
        assert str(loaded.problems[1].meta["level"]) == "2"
        assert loaded.problems[0].meta["question"] == "1 + 1?"
        assert len({p.id for p in loaded.problems}) == 2


def test_guesses_are_announced_and_named_columns_are_not(tmp_path, caplog):
    place = jsonl(tmp_path / "a.jsonl", ROWS)
    with caplog.at_level(logging.INFO):
        loaded = load_dataset_task(place)
    assert "problem from column 'question', gold from column 'target'" in loaded.announcement
    assert loaded.announcement in caplog.text
    assert load_dataset_task(place, "question", "target").announcement == ""


def test_ambiguous_or_missing_columns_are_refused_with_the_flag_to_use(tmp_path):
    both = jsonl(tmp_path / "a.jsonl", [{"problem": "1?", "solution": "so 1", "answer": "1"}])
    with pytest.raises(DataError, match=r"solution, answer.*--gold-column solution"):
        load_dataset_task(both)
    assert load_dataset_task(both, solution_column="solution").problems[0].solution == "so 1"
    none = jsonl(tmp_path / "b.jsonl", [{"text": "1?", "gold": "1"}])
    with pytest.raises(DataError, match=r"Columns: text, gold.*--prompt-column text"):
        load_dataset_task(none)
    with pytest.raises(DataError, match="Did you mean 'gold'"):
        load_dataset_task(none, "text", "gould")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.jsonl",
            '{"problem": "1?", "gold": "1"}\n\n{"problem": \n',
            "line 3: not JSON",
        ),
        ("a.jsonl", '{"problem": "1?", "gold": "1"}\n[1]\n', "line 2: a list"),
        (
            "a.jsonl",
            '{"problem": "1?", "gold": "1"}\n{"gold": "1"}\n',
            "line 2: the problem is",
        ),
        ("a.jsonl", '{"problem": "1?", "gold": {"a": 1}}\n', "line 1: the gold is"),
        ("a.jsonl", '{"problem": "1?", "gold": null}\n', "empty in every row"),
        ("a.jsonl", "\n", "no rows"),
        (
            "a.jsonl",
            '{"problem": "1?", "gold": "1"}\n{"problem": "\\ud83d", "gold": "1"}\n',
            "line 2: the column 'problem' holds half of a surrogate pair",
        ),
        ("a.jsonl", '{"problem": "1?", "gold": "1", "x": [{"y": "\\ude00"}]}\n', "line 1: .*'x'"),
        ("a.json", '[{"problem": "1?", "gold": "1", "id": "\\ud83d"}]', "row 1: .*'id'"),
        ("a.csv", "problem,gold\n1?,1\n2?,2,3\n", "line 3: 3 cells for 2 columns"),
        ("a.csv", "problem,problem\n1?,1\n", "line 1: the column names"),
        ("a.json", '{"a": 1}', "no list of rows"),
        ("a.json", "[1]", "row 1: a int"),
        ("a.json", "[", "not JSON"),
        ("a.txt", "hello", "no known ending"),
        ("a.parquet", "hello", "not parquet"),
    ],
)
def test_unreadable_rows_are_refused_with_their_place(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        load_dataset_task(str(tmp_path / name))


def test_bytes_that_are_not_text_and_torn_archives_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"problem": "\xff"}\n')
    packed = gzip.compress(json.dumps(ROWS[0]).encode() * 50)
    (tmp_path / "b.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    for name in ("a.jsonl", "b.jsonl.gz"):
        with pytest.raises(DataError, match="cannot be read"):
            load_dataset_task(str(tmp_path / name))


def test_ids_come_from_the_column_or_the_content(tmp_path):
    own = jsonl(tmp_path / "own.jsonl", [{"id": 7, "problem": "a", "gold": "1"}])
    assert load_dataset_task(own).problems[0].id == "own/7"
    rows = [{"problem": text, "gold": "1"} for text in "aba"]
    first = load_dataset_task(jsonl(tmp_path / "x.jsonl", rows)).problems
    assert first[2].id == first[0].id + "-2"
    turned = load_dataset_task(jsonl(tmp_path / "x.jsonl", rows[::-1])).problems
    assert {p.id for p in turned} == {p.id for p in first}
    twice = jsonl(tmp_path / "twice.jsonl", [{"id": 1, "problem": t, "gold": "1"} for t in "ab"])
    with pytest.raises(DataError, match=r"line 2: the id 1 was used before, at .*line 1"):
        load_dataset_task(twice)


def test_a_chat_gives_its_one_user_turn_and_longer_chats_are_refused(tmp_path):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    place = jsonl(tmp_path / "a.jsonl", [{"prompt": turns, "gts": ["2"]}])
    problem = load_dataset_task(place).problems[0]
    assert (problem.text, problem.gold) == ("1 + 1?", "2")
    longer = [*turns, {"role": "assistant", "content": "3"}, turns[1]]
    place = jsonl(tmp_path / "b.jsonl", [{"prompt": longer, "gold": "2"}])
    with pytest.raises(DataError, match="system, user, assistant, user"):
        load_dataset_task(place)


def test_numbers_become_text_and_blank_golds_none(tmp_path):
    rows = [{"problem": "a", "gold": gold} for gold in (5, 0.5, "x", " ", None)]
    loaded = load_dataset_task(jsonl(tmp_path / "a.jsonl", rows))
    assert [p.gold for p in loaded.problems] == ["5", "0.5", "x", None, None]


def test_the_data_hash_follows_the_rows_and_not_the_file(tmp_path):
    one = load_dataset_task(jsonl(tmp_path / "a.jsonl", ROWS)).data_hash
    (tmp_path / "sub").mkdir()
    assert load_dataset_task(jsonl(tmp_path / "sub" / "a.jsonl", ROWS)).data_hash == one
    assert load_dataset_task(jsonl(tmp_path / "a.jsonl", ROWS[::-1])).data_hash != one


def test_a_split_stands_after_the_last_colon_of_a_place(tmp_path):
    assert split_place("openai/gsm8k:test") == ("openai/gsm8k", "test")
    assert split_place("C:/data/rows.jsonl") == ("C:/data/rows.jsonl", None)
    jsonl(tmp_path / "train.jsonl", ROWS)
    jsonl(tmp_path / "test.jsonl", ROWS[:1])
    assert len(load_dataset_task(f"{tmp_path}:train").problems) == 2
    assert load_dataset_task(f"{tmp_path}:test").split == "test"
    with pytest.raises(DataError, match=r"test\.jsonl, train\.jsonl"):
        load_dataset_task(str(tmp_path))
    with pytest.raises(DataError, match="no split 'dev'"):
        load_dataset_task(f"{tmp_path}:dev")


def test_what_datasets_saved_can_be_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": whole, "test": whole.select([0])}).save_to_disk(tmp_path / "two")
    assert len(load_dataset_task(str(tmp_path / "one")).problems) == 2
    assert len(load_dataset_task(f"{tmp_path / 'two'}:test").problems) == 1
    with pytest.raises(DataError, match="train, test"):
        read_table(str(tmp_path / "two"))


def test_a_place_that_is_nowhere_is_refused_before_any_download():
    for place in ("missing.jsonl", "./missing", "/nowhere/at/all", "a b"):
        with pytest.raises(DataError, match="no file or folder"):
            load_dataset_task(place)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionError("offline"), SetupError, r"path=FILE.*\n.*HF_HOME"),
        (RuntimeError("odd\nsecond line"), SetupError, "RuntimeError: odd"),
        (ValueError("Unknown split"), DataError, "no such split or configuration"),
    ],
)
def test_what_the_hub_cannot_give_ends_in_what_to_do(monkeypatch, error, kind, words):
    datasets = pytest.importorskip("datasets")

    def offline(*args, **kwargs):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(kind, match=words):
        load_task("gsm8k")


def test_a_whole_surrogate_pair_is_its_character(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"problem": "\\ud83d\\ude00?", "gold": "1"}\n')
    assert load_dataset_task(str(tmp_path / "a.jsonl")).problems[0].text == "😀?"


def test_half_a_surrogate_pair_is_refused_in_files_of_known_tasks_too(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "\\ud83d", "answer": "#### 1"}\n')
    with pytest.raises(DataError, match="line 1: the column 'question' holds half"):
        load_task(f"gsm8k?path={tmp_path / 'a.jsonl'}")


def test_a_solution_is_a_text_or_none_and_an_empty_cell_is_none(tmp_path):
    cells = (float("nan"), None, " ", "so", 3, ["so"])
    rows = [{"problem": "a", "gold": "1", "how": cell} for cell in cells]
    loaded = load_dataset_task(jsonl(tmp_path / "a.jsonl", rows), solution_column="how")
    assert [p.solution for p in loaded.problems] == [None, None, None, "so", "3", "so"]
    rows = [{"problem": "a", "gold": "1", "how": {"a": 1}}]
    with pytest.raises(
        DataError, match=r"line 1: the solution is .*--set data\.solution_column=NAME"
    ):
        load_dataset_task(jsonl(tmp_path / "b.jsonl", rows), solution_column="how")


def test_an_id_that_is_nan_is_no_id(tmp_path):
    rows = [{"problem": text, "gold": "1", "id": id} for text, id in (("a", 1.0), ("b", math.nan))]
    loaded = load_dataset_task(jsonl(tmp_path / "a.jsonl", rows))
    assert not any("nan" in problem.id for problem in loaded.problems)
    assert len({problem.id for problem in loaded.problems}) == 2
