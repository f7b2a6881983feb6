"""``stepmark verify --file``: rows, disagreements, the 2 x 2 table, the page; or nothing at all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
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
    square = [line.split()[-2:] for line in said.splitlines() if line.startswith("math@2: ")]
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
        (("--file", "r.jsonl", "--out", "x.jsonl", "--against", "exact"), "Give a folder"),
        (("--file", "r.jsonl", "--out", "x", "--against", "math"), "agree by themselves"),
        (("--file", "r.jsonl", "--out", "r.jsonl"), "it would be lost"),
        (("--file", "r.jsonl", "--out", "x", "--gold", "4"), "--gold-column NAME"),
        (("--file", "r.jsonl", "--out", "x", "--gold-from", "arith"), "--join-on id"),
        (("--file", "r.jsonl", "--out", "x", "--gold-from", "arit", "--join-on", "id"), "arith"),
        (("--file", "r.jsonl", "--out", "x", "--workers", "0"), "number of workers is 0"),
        (("--file", "r.jsonl", "--out", "x", "--adjudicated", "no.jsonl"), "cannot be read"),
        (("--file", "r.jsonl", "--out", "x", "--gold-from", "r.jsonl", "--join-on", "di"), "'di'"),
    ],
)
def test_bad_input_exits_2_and_writes_nothing(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == {"r.jsonl"}


def test_reasons_are_counted_and_golds_are_looked_at_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("r.jsonl").open("a") as file:
        file.write(json.dumps(ROWS[0] | {"id": "e", "gold": r"\frac{", "is_correct": None}) + "\n")
    assert run(["verify", "--file", "r.jsonl", "--out", "marked"]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines() if line.startswith(("ok", "abst"))] == [
        ["ok", "equal", "2"],
        ["ok", "different", "1"],
        ["abstain", "gold_unreadable", "1"],
    ]
    assert "1 of 4 golds cannot be read" in said.err
    assert "1 row has no verdict of recorded" in said.out


def test_unreadable_rows_end_in_a_rejects_file_and_exit_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("r.jsonl").open("a") as file:
        file.write('{"id": "e"\n')
    assert run(["verify", "--file", "r.jsonl", "--out", "marked"]) == 3
    assert run(["verify", "--file", "r.jsonl", "--out", "v.jsonl", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["rejects"] == 1
    assert "1 row could not be used: v.rejects.jsonl (line 4: not a JSON object" in said.err
    for path in ("marked/rejects.jsonl", "v.rejects.jsonl"):
        assert [row["line"] for row in rows(path)] == [4]


def test_golds_come_from_a_task_and_what_does_not_join_is_set_aside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("p.jsonl").write_text('{"id": "a", "question": "1+1?", "answer": "2"}\n')
    kept = [{key: row[key] for key in ("id", "response")} for row in ROWS]
    Path("bare.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    arguments = ["verify", "--file", "bare.jsonl", "--out", "v.jsonl"]
    assert run(arguments) == 2
    assert "--gold-from TASK --join-on COLUMN" in capsys.readouterr().err
    assert run([*arguments, "--gold-from", "p.jsonl", "--join-on", "id"]) == 3
    assert [(row["id"], row["correct"]) for row in rows("v.jsonl")] == [("a", True)]
    assert [row["line"] for row in rows("v.rejects.jsonl")] == [2, 3]


def test_a_folder_of_verdicts_is_not_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "marked"]) == 0
    assert run(["verify", "--file", "marked", "--out", "again"]) == 2
    assert "folder of verdicts" in capsys.readouterr().err


def test_math_verify_can_be_compared_with() -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "m", "--against", "math-verify"]) == 0
    assert json.loads(Path("m/summary.json").read_text())["against"].startswith("math-verify@")
    assert [row["correct"] for row in rows("m/against.jsonl")] == [True, True, False]
    assert rows("m/disagreements.jsonl") == []


def test_what_was_decided_on_the_page_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--file", "r.jsonl", "--out", "marked"]) == 0
    Path("adjudications.jsonl").write_text('{"id":"b","k":0,"correct":true,"note":"equal"}\n')
    capsys.readouterr()
    decided = ["--adjudicated", "adjudications.jsonl"]
    assert run(["verify", "--file", "r.jsonl", "--out", "marked", *decided]) == 0
    said = capsys.readouterr().out
    assert "Of 1 decided, math@2 had 1 right and recorded 0; 1 label changed." in said
    assert "0 disagreements" in said
    assert rows("marked/changes.jsonl") == [
        {"id": "b", "k": 0, "was": False, "now": True, "ours": True, "note": "equal"}
    ]


def test_a_signal_leaves_verdicts_that_the_same_command_goes_on_from() -> None:
    Path("slow.py").write_text(
        "import time\n\ndef slow(completion):\n    time.sleep(0.1)\n    return True\n"
    )
    rows_200 = [ROWS[0] | {"id": str(n)} for n in range(200)]
    Path("many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_200))
    script = [str(Path(sys.executable).with_name("stepmark")), "verify", "--file", "many.jsonl"]
    script += ["--verifier", "slow.py:slow", "--out", "v.jsonl", "--workers", "1"]
    started = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
    kept, until = Path("v.jsonl.part"), time.monotonic() + 60
    while not list(kept.glob("verdicts.*")) and time.monotonic() < until:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "To continue:\n    stepmark verify --file many.jsonl" in said
    assert "Traceback" not in said
    (path,) = kept.glob("verdicts.*")
    assert 0 < len(path.read_text().splitlines()) < 200
    Path("slow.py").write_text(Path("slow.py").read_text().replace("0.1", "0.0"))
    assert run([*script[1:]]) == 2  # another verifier than the one that began


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
