"""A conversion is whole or not there; rejects say line and reason; the manifest counts it all."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import ConfigError, DataError, UnknownNameError
from stepmark.prm import convert_file, formats, labelled_steps
from stepmark.prm.formats import Repairs
from stepmark.store import file_hash

GOOD = {"prompt": "What is 2+3*4?", "completions": ["3*4=12.", "2+12=15."], "labels": [True, False]}
BAD = GOOD | {"labels": [True]}
BENCH = {"problem": "Q", "steps": ["a", "b", "c"], "label": 1, "final_answer_correct": False}


def test_rejected_rows_are_written_with_line_reason_and_themselves(convert: Any) -> None:
    made = convert([GOOD, BAD, "", "{not json", "[1, 2]", GOOD])
    assert [row["steps"] for row in made.rows] == [GOOD["completions"]] * 2
    assert [(row["line"], row["reason"]) for row in made.rejects] == [
        (2, "label_count"),
        (4, "not_json"),
        (5, "not_json"),
    ]
    assert made.rejects[0]["row"] == BAD
    assert "2 steps" in made.rejects[0]["detail"]
    assert made.manifest["rejects"] == {"label_count": 1, "not_json": 2}
    assert made.found.first_reject.startswith("line 2: label_count")


def test_the_manifest_counts_and_names_everything(convert: Any, tmp_path: Path) -> None:
    made = convert([GOOD, GOOD | {"labels": [0.5, 0.0]}, BAD])
    found = made.manifest
    assert found["format"] == "trl"
    assert found["settings"]["empty_steps"] == "reject"
    assert found["input"] == {
        "place": str(tmp_path / "source.jsonl"),
        "hash": file_hash(tmp_path / "source.jsonl"),
        "rows": 3,
        "used": 2,
    }
    assert found["output"] == {
        "file": "rows.jsonl",
        "hash": file_hash(tmp_path / "rows.jsonl"),
        "rows": 2,
        "distinct": 1,
        "problems": 1,
        "steps": 4,
        "labels": {"right": 1, "wrong": 2, "between": 1, "masked": 0},
        "last_labels": {"right": 0, "wrong": 2, "between": 0, "masked": 0},
    }


def test_settings_of_the_format_stand_in_the_manifest(convert: Any) -> None:
    row = {
        "question": {"problem": "Q"},
        "label": {"steps": [{"completions": [{"text": "a", "rating": 0}], "chosen_completion": 0}]},
    }
    made = convert([row], "prm800k?neutral=negative", human="mask")
    assert made.manifest["settings"]["neutral"] == "negative"
    assert made.manifest["settings"]["human"] == "mask"
    assert made.rows[0]["labels"] == [0]


def test_equal_input_gives_equal_files(convert: Any) -> None:
    first, second = convert([GOOD, BAD]), convert([GOOD, BAD])
    assert (first.rows, first.rejects, first.manifest) == (
        second.rows,
        second.rejects,
        second.manifest,
    )


def test_rejects_of_an_earlier_conversion_go(convert: Any, tmp_path: Path) -> None:
    assert convert([BAD]).rejects
    assert convert([GOOD]).rejects == []
    assert {path.name for path in tmp_path.iterdir()} == {
        "source.jsonl",
        "rows.jsonl",
        "rows.manifest.json",
    }


def test_an_error_in_the_middle_leaves_the_earlier_conversion(convert: Any, tmp_path: Path) -> None:
    before = convert([GOOD])
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.stem != "source"}

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert([GOOD] * 50, on_progress=stop)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.stem != "source"}
    assert after == kept
    assert len(before.rows) == 1


def test_one_bad_part_rejects_the_whole_row(convert: Any) -> None:
    completions = [{"text": "a", "rating": 1}, {"text": " ", "rating": -1}]
    step = {"completions": completions, "chosen_completion": 0}
    row = {"question": {"problem": "Q"}, "label": {"steps": [step]}}
    made = convert([row])
    assert (made.rows, made.manifest["rejects"]) == ([], {"empty_step": 1})
    mended = convert([row], repairs={"empty_steps": "drop"})
    assert mended.manifest["rejects"] == {"no_steps": 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (GOOD | {"completions": ["a", " \n"]}, "empty_step"),
        (GOOD | {"completions": [], "labels": []}, "no_steps"),
        (GOOD | {"prompt": " "}, "no_problem"),
        (GOOD | {"labels": [None, None]}, "no_labels"),
    ],
)
def test_what_no_format_may_hold_is_rejected(convert: Any, row: Any, reason: str) -> None:
    assert convert([row], "trl").found.rejects == {reason: 1}


@pytest.mark.parametrize(
    ("choice", "labels"),
    [("keep", [1, 0, None]), ("mask", [1, 0, None]), ("negative", [1, 0, 0])],
)
def test_labels_after_the_first_error_are_what_the_option_says(
    convert: Any, choice: str, labels: list[Any]
) -> None:
    made = convert([BENCH], repairs={"after_error": choice})
    assert made.rows[0]["labels"] == labels
    assert made.manifest["repaired"] == ({"after_error": 1} if choice == "negative" else {})


def test_a_right_label_after_an_error_stays_unless_it_is_masked(convert: Any) -> None:
    row = GOOD | {"completions": ["a", "b", "c"], "labels": [True, False, True]}
    assert convert([row]).rows[0]["labels"] == [1, 0, 1]
    assert convert([row], repairs={"after_error": "mask"}).rows[0]["labels"] == [1, 0, None]


def test_duplicates_are_dropped_when_asked_for_and_other_labels_are_none(convert: Any) -> None:
    rows = [GOOD, GOOD | {"prompt": " What is  2+3*4?"}, GOOD | {"labels": [True, True]}]
    assert convert(rows).found.rows == 3
    made = convert(rows, repairs={"duplicates": "drop"})
    assert (made.found.rows, made.found.distinct) == (2, 1)
    assert made.manifest["left_out"] == {"duplicate": 1}


def test_line_ends_become_one_and_are_counted(convert: Any) -> None:
    text = "Q Step 1: a \\right ки\r\nStep 2: b ки"
    row = {"input": text, "label": text.replace("ки", "+").replace("\r\n", "\n")}
    made = convert([row])
    assert made.rows[0]["steps"] == ["Step 1: a \\right", "Step 2: b"]
    assert made.manifest["repaired"] == {"line_ends": 1}
    lone = convert([GOOD | {"prompt": "What is \right?"}])
    assert lone.rows[0]["problem"] == "What is \right?"


def test_a_step_may_hold_a_separator_and_be_very_long(convert: Any) -> None:
    long = "x + " * 300_000
    row = {"prompt": "Q", "completions": ["a\n\nb ки", long], "labels": [True, False]}
    assert convert([row]).rows[0]["steps"] == ["a\n\nb ки", long]


def test_half_a_surrogate_pair_is_carried_along(convert: Any, tmp_path: Path) -> None:
    made = convert([json.dumps(GOOD | {"prompt": "\ud83d?"})])
    assert made.rows[0]["problem"] == "\ud83d?"
    assert next(labelled_steps(tmp_path / "rows.jsonl")).problem.text == "\ud83d?"
    assert convert([json.dumps(BAD | {"prompt": "\ud83d?"})], "trl").rejects


def test_nan_and_dates_beside_the_labels_are_carried_as_json_can(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    when = datetime(2022, 7, 17, tzinfo=UTC)
    rows = [GOOD | {"when": when, "share": float("nan")}, BAD | {"when": when, "share": 0.5}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = convert_file(str(tmp_path / "a.parquet"), tmp_path / "rows.jsonl")
    assert (found.rows, found.rejects) == (1, {"label_count": 1})
    assert next(labelled_steps(tmp_path / "rows.jsonl")).meta == {
        "when": "2022-07-17 00:00:00+00:00",
        "share": None,
    }


@pytest.mark.parametrize("depth", [900, 2_000, 200_000])
def test_a_row_that_is_nested_too_deeply_is_rejected(convert: Any, depth: int) -> None:
    deep = "[" * depth + '"a\\r\\n"' + "]" * depth
    made = convert([json.dumps(GOOD)[:-1] + f', "more": {deep}}}', GOOD])
    assert (made.found.rows, made.manifest["rejects"]) == (1, {"not_json": 1})


def test_a_line_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "source.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\n\xff\xfe\n")
    found = convert_file(str(path), tmp_path / "rows.jsonl")
    assert (found.rows, found.rejects) == (1, {"not_json": 1})


def test_packed_lines_lists_and_parquet_are_read_alike(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [GOOD, GOOD | {"prompt": "Another?"}]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    hashes = set()
    for name in ("a.jsonl.gz", "a.json", "a.parquet"):
        found = convert_file(str(tmp_path / name), tmp_path / "rows.jsonl")
        assert (found.format, found.rows, found.rejects) == ("trl", 2, {})
        hashes.add(found.out_hash)
    assert len(hashes) == 1


def test_a_broken_archive_is_an_error_and_no_conversion(tmp_path: Path) -> None:
    whole = gzip.compress("".join(json.dumps(GOOD) + "\n" for _ in range(500)).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-10])
    with pytest.raises(DataError, match="cannot be read"):
        convert_file(str(tmp_path / "a.jsonl.gz"), tmp_path / "rows.jsonl", "trl")
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl.gz"}


def test_rows_go_to_trl_and_back(convert: Any, tmp_path: Path) -> None:
    rows = [GOOD, GOOD | {"labels": [0.25, 1.0]}]
    made = convert(rows, written_as="trl")
    assert made.rows == rows
    assert made.manifest["written_as"] == "trl"
    ours = convert_file(str(tmp_path / "rows.jsonl"), tmp_path / "ours.jsonl")
    back = convert_file(str(tmp_path / "ours.jsonl"), tmp_path / "back.jsonl", written_as="trl")
    assert (ours.format, back.format) == ("trl", "stepmark")
    assert (tmp_path / "back.jsonl").read_bytes() == (tmp_path / "rows.jsonl").read_bytes()


def test_a_row_that_cannot_be_written_counts_as_rejected_and_no_more(convert: Any) -> None:
    completions = [{"text": "a", "rating": 1}, {"text": "b", "rating": None}]
    first = {"completions": completions, "chosen_completion": 0}
    second = {"completions": [{"text": "c", "rating": -1}] * 2, "chosen_completion": None}
    row = {"question": {"problem": "Q"}, "label": {"steps": [first, second]}}
    made = convert([row], written_as="trl")
    assert (made.rows, made.manifest["rejects"]) == ([], {"masked_between": 1})
    assert made.manifest["left_out"] == {}
    assert len(convert([row], written_as="trl", alternatives="prefix").rows) == 3


def test_only_formats_that_can_be_written_are_written(convert: Any) -> None:
    with pytest.raises(ConfigError, match="Write math-shepherd, stepmark or trl instead"):
        convert([GOOD], written_as="qwen")


def test_the_format_is_guessed_or_refused_with_the_candidates(convert: Any) -> None:
    assert convert([BENCH]).found.format == "processbench"
    with pytest.raises(DataError, match=r"no known format.*Columns: a.*--format NAME"):
        convert([{"a": 1}])
    with pytest.raises(DataError, match=r"could be processbench or skywork\."):
        convert([BENCH | {"response": "a"}])
    with pytest.raises(DataError, match="no row that can be read"):
        convert(["{"])


def test_a_format_of_ones_own_is_named_by_its_file(convert: Any, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from stepmark import LabelledSteps, Problem\n"
        "from stepmark.prm.formats import Rejected\n"
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def __init__(self, flip: bool = False): self.flip = flip\n"
        "    @staticmethod\n"
        "    def matches(row): return 'q' in row\n"
        "    def read(self, row):\n"
        "        if 'bad' in row: raise Rejected('bad', 'marked as bad')\n"
        "        yield LabelledSteps(Problem('p', row['q'], None), ('a',), (float(self.flip),))\n"
    )
    made = convert([{"q": "Q"}, {"q": "Q", "bad": 1}], f"{source}:Mine?flip=true")
    assert made.rows[0]["labels"] == [1]
    assert made.manifest["rejects"] == {"bad": 1}
    assert made.manifest["settings"]["flip"] is True


def test_a_registered_format_is_known_by_its_name() -> None:
    class Other:
        name = "other"

    formats.register("other-format")(Other)
    try:
        assert "other-format" in formats.names()
        with pytest.raises(ConfigError, match="no format"):
            convert_file("x.json", "rows.jsonl", written_as="other-format")
    finally:
        del formats._registered["other-format"]


def test_places_and_settings_that_cannot_work_are_refused(convert: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD) + "\n")
    file = str(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="it would be lost"):
        convert_file(file, file)
    with pytest.raises(ConfigError, match=r"ends in \.jsonl"):
        convert_file(file, tmp_path / "rows.json")
    with pytest.raises(DataError, match="There is no file"):
        convert_file(str(tmp_path / "none.jsonl"), tmp_path / "rows.jsonl")
    with pytest.raises(UnknownNameError, match="Did you mean 'prm800k'"):
        convert([GOOD], "prm80k")
    with pytest.raises(ConfigError, match="no setting 'neutral'"):
        convert([GOOD], "trl", neutral="mask")
    with pytest.raises(ConfigError, match="after_error is 'drop'"):
        Repairs(after_error="drop")


def test_a_limit_reads_the_first_rows_only(convert: Any) -> None:
    assert convert([GOOD, GOOD, BAD], limit=2).found.rows_in == 2


def test_progress_reaches_the_end(convert: Any) -> None:
    seen: list[tuple[int, int]] = []
    convert([GOOD] * 100, on_progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 2
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
