"""Files: rows come back as they were, torn ends are dropped, half-made files are never seen."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import RunError
from stepmark.store import (
    append_rows,
    file_hash,
    publish,
    read_rows,
    rows_hash,
    text_hash,
    write_json,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
rows = st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=5)


@given(rows, rows)
def test_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, one: list[Any], two: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    finite = json.loads(json.dumps([*one, *two]), parse_constant=lambda _: None)
    append_rows(path, one)
    append_rows(path, two)
    assert read_rows(path) == finite


def test_half_a_surrogate_pair_and_odd_line_breaks_survive(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    given = [{"a": "\ud83d"}, {"a": "x\u2028y\x85z\r\n"}]
    append_rows(path, given)
    assert read_rows(path) == given


def test_numbers_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [{"loss": float("nan"), "best": [float("inf"), 1.0]}])
    assert read_rows(path) == [{"loss": None, "best": [None, 1.0]}]


def test_a_file_that_does_not_exist_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl") == []


def test_a_cut_at_any_byte_leaves_a_prefix_and_the_next_append_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    given = [{"n": n, "text": "é" * n} for n in range(4)]
    append_rows(path, given)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = read_rows(path)
        complete = whole[:size].count(b"\n")
        assert found == given[:complete]
        assert bool(caplog.records) == (not whole[:size].endswith(b"\n") and size > 0)
        append_rows(path, [{"n": 99}])
        assert read_rows(path) == [*given[:complete], {"n": 99}]


def test_a_torn_end_is_reported_with_file_and_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2')
    assert read_rows(path) == [{"a": 1}]
    assert str(path) in caplog.text
    assert "7 bytes" in caplog.text


@pytest.mark.parametrize("middle", [b'{"a": 2', b"[1]", b"nonsense"])
def test_a_bad_line_before_the_end_is_refused(tmp_path: Path, middle: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + middle + b'\n{"a": 3}\n')
    with pytest.raises(RunError, match="line 2"):
        read_rows(path)


def test_publishing_shows_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with publish(path) as part:
        part.write_text("one")
        assert not path.exists()
    assert path.read_text() == "one"

    def break_off() -> None:
        with publish(path) as part:
            part.write_text("two")
            raise KeyError

    with pytest.raises(KeyError):
        break_off()
    assert path.read_text() == "one"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_a_folder_is_published_whole_and_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with publish(path) as part:
        part.mkdir()
        (part / "a").write_text("1")
    with pytest.raises(RunError, match="not empty"), publish(path) as part:
        part.mkdir()
    assert (path / "a").read_text() == "1"
    with publish(path, replace=True) as part:
        part.mkdir()
        (part / "b").write_text("2")
    assert sorted(entry.name for entry in path.iterdir()) == ["b"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder"]


def test_publishing_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Nothing was made"), publish(tmp_path / "x"):
        pass


def test_json_is_written_whole_and_finite(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": float("nan"), "p": tmp_path})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "p": str(tmp_path)}


def test_hashes_change_with_content_and_only_with_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 + 1?")
    assert file_hash(tmp_path / "a") == text_hash("1 + 1?") != text_hash("1 + 2?")
    assert rows_hash([{"a": 1}, {"b": 2}]) != rows_hash([{"b": 2}, {"a": 1}])
