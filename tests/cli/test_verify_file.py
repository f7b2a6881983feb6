"""``stepmark verify --file``: rows, disagreements, the 2 x 2 table, the page; or nothing at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

ROWS = [
    {
        "id": "a",
        "question": "1+1?",
        "response": "The answer is 2.",
        "gold": "2",
        "is_correct": True,
    },
    {
        "id": "b",
        "question": "1/2?",
        "response": r"\boxed{\frac12}",
        "gold": "0.5",
        "is_correct": False,
    },
    {"id": "c", "question": "3?", "response": "It is 4", "gold": "3", "is_correct": False},
]


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_folder_holds_verdicts_disagreements_table_and_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "marked"]) == 0
    said = capsys.readouterr().out
    names = {path.name for path in Path("marked").iterdir()}
    wanted = {"verdicts.jsonl", "disagreements.jsonl", "summary.json", "table.md", "page.html"}
    assert names == wanted
    assert [row["correct"] for row in rows("marked/verdicts.jsonl")] == [True, True, False]
    assert [row["id"] for row in rows("marked/disagreements.jsonl")] == ["b"]
    square = [line.split()[-2:] for line in said.splitlines() if line.startswith("math@1: ")]
    assert square == [["1", "1"], ["0", "1"]]
    page = Path("marked/page.html").read_text()
    assert r"\boxed{\frac12}" in page
    assert "recorded: wrong" in page


def test_json_holds_the_counts_and_the_square(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "marked", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["disagreements"]) == (3, 1)
    assert told["square"] == [["correct", 1, 1], ["wrong", 0, 1]]


def test_a_jsonl_path_gets_verdict_rows_only() -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "v.jsonl", "--first", "2"]) == 0
    found = rows("v.jsonl")
    assert [(row["id"], row["k"], row["correct"]) for row in found] == [
        ("a", 0, True),
        ("b", 0, True),
    ]
    columns = ["id", "k", "correct", "score", "status", "reason", "extracted", "gold"]
    assert list(found[0])[:8] == columns
    assert {path.name for path in Path().iterdir()} == {"r.jsonl", "v.jsonl"}


def test_another_verifier_takes_the_place_of_the_label() -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "marked", "--against", "exact"]) == 0
    (row,) = rows("marked/disagreements.jsonl")
    assert (row["id"], row["correct"], row["label"]) == ("b", True, False)


def test_a_limit_takes_the_same_rows_whatever_their_order() -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "v.jsonl", "--limit", "2"]) == 0
    lines = Path("r.jsonl").read_text().splitlines(keepends=True)
    Path("back.jsonl").write_text("".join(lines[::-1]))
    assert run(["verify", "--file", "back.jsonl", "--out", "w.jsonl", "--limit", "2"]) == 0
    assert {row["id"] for row in rows("v.jsonl")} == {row["id"] for row in rows("w.jsonl")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--file", "r.jsonl"), "without --out"),
        (("4", "--file", "r.jsonl", "--out", "x"), "belongs to a file"),
        (("4", "--gold", "4", "--limit", "3"), "--limit, which belongs to a file"),
        (("--file", "absent.jsonl", "--out", "x"), "absent.jsonl"),
        (("--file", "r.jsonl", "--out", "x", "--gold-column", "golf"), "Did you mean 'gold'?"),
        (("--file", "r.jsonl", "--out", "x", "--verifier", "mat"), "Did you mean 'math'?"),
        (("--file", "r.jsonl", "--out", "x", "--against", "mat"), "Did you mean 'math'?"),
        (("--file", "r.jsonl", "--out", "x", "--limit", "0"), "1 or more"),
        (
            ("--file", "r.jsonl", "--out", "x", "--against", "exact", "--label-column", "gold"),
            "Keep one of them",
        ),
    ],
)
def test_bad_input_exits_2_and_writes_nothing(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == {"r.jsonl"}


def test_a_file_is_marked_with_nothing_of_the_train_extra() -> None:
    Path("r.csv").write_text('response,gold,label\n"The answer is 2.",2,yes\n')
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'datasets', 'pandas', 'matplotlib', 'scipy'):\n"
        "    sys.modules[name] = None\n"
        "from stepmark.cli.app import run\n"
        "sys.exit(run(['verify', '--file', 'r.csv', '--out', 'marked']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert Path("marked/page.html").is_file()
