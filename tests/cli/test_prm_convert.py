"""``stepmark prm convert`` and ``prm inspect``: what they say, their exit codes, stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

TRL = {"prompt": "What is 2+3*4?", "completions": ["3*4=12.", "2+12=15."], "labels": [True, False]}
PRM800K = {
    "question": {"problem": "1+1?", "ground_truth_answer": "2"},
    "label": {
        "steps": [
            {
                "completions": [{"text": "a", "rating": 0}, {"text": "b", "rating": -1}],
                "chosen_completion": 0,
                "human_completion": None,
            }
        ],
        "finish_reason": "solution",
    },
}
SHEPHERD = {
    "input": "Q. ки Step 1: a ки\nStep 2: b ки\n",
    "label": "Q. + Step 1: a -\nStep 2: b +\n",
}


@pytest.fixture(autouse=True)
def _in_a_folder_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, row in (("trl", TRL), ("prm800k", PRM800K), ("shepherd", SHEPHERD)):
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_format_is_guessed_and_announced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "convert", "trl.jsonl", "--out", "rows.jsonl"]) == 0
    said = capsys.readouterr()
    assert "trl.jsonl: read as trl (guessed from its columns)" in said.err
    assert "1 row of 1 problem: rows.jsonl" in " ".join(said.out.split())
    assert "1 right, 1 wrong" in said.out
    assert rows("rows.jsonl")[0]["labels"] == [1, 0]
    assert run(["prm", "convert", "trl.jsonl", "--out", "rows.jsonl", "--format", "trl"]) == 0
    assert "guessed" not in capsys.readouterr().err


def test_rejected_rows_make_the_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "convert", "shepherd.jsonl", "--out", "rows.jsonl"]) == 3
    said = capsys.readouterr().err
    assert "1 row was rejected, see rows.rejects.jsonl: 1 stray_tag" in said
    assert "stray_tags=drop" in said
    mended = ["--set", "stray_tags=drop", "--after-error", "mask"]
    assert run(["prm", "convert", "shepherd.jsonl", "--out", "rows.jsonl", *mended]) == 0
    assert rows("rows.jsonl")[0]["labels"] == [0, None]
    assert not Path("rows.rejects.jsonl").exists()


def test_machines_get_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prm", "convert", "prm800k.jsonl", "--out", "rows.jsonl", "--json"]
    flags = ["--neutral", "negative", "--alternatives", "prefix", "--phase", "1"]
    assert run([*command, *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("files") == {"rows": "rows.jsonl", "rejects": None}
    assert said == json.loads(Path("rows.manifest.json").read_text())
    assert said["settings"]["neutral"] == "negative"
    assert said["output"]["labels"] == {"right": 0, "wrong": 2, "between": 0, "masked": 0}
    assert run([*command, "--phase", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"other_phase": 1}


def test_trl_is_written_when_asked_for() -> None:
    assert run(["prm", "convert", "shepherd.jsonl", "--out", "t.jsonl", "--to", "trl"]) == 3
    assert run(["prm", "convert", "trl.jsonl", "--out", "t.jsonl", "--to", "trl"]) == 0
    assert rows("t.jsonl") == [TRL]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--neutral", "mask"], "no setting 'neutral'"),
        (["--set", "tail=mask"], "no setting 'tail'"),
        (["--set", "after_error"], "has no value"),
        (["--after-error", "drop"], "It is one of: keep, mask, negative"),
        (["--to", "qwen"], "Write math-shepherd, stepmark or trl instead"),
        (["--format", "tlr"], "Did you mean 'trl'?"),
        (["--format", "prm800k"], ""),
    ],
)
def test_flags_that_cannot_work_are_refused(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["prm", "convert", "trl.jsonl", "--out", "rows.jsonl", *flags])
    assert code == (2 if said else 3)
    assert said in " ".join(capsys.readouterr().err.split())
    assert Path("rows.jsonl").exists() == (not said)


def test_an_ambiguous_file_is_refused_with_the_candidates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = {"problem": "Q", "steps": ["a"], "label": 0, "response": "a"}
    Path("both.jsonl").write_text(json.dumps(both) + "\n")
    assert run(["prm", "convert", "both.jsonl", "--out", "rows.jsonl"]) == 2
    assert "could be processbench or skywork" in " ".join(capsys.readouterr().err.split())
    command = ["prm", "convert", "both.jsonl", "--out", "rows.jsonl", "--format", "processbench"]
    assert run(command) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_leaves_the_earlier_conversion_and_nothing_else(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    assert run(["prm", "convert", "trl.jsonl", "--out", "rows.jsonl"]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = json.dumps(TRL | {"completions": ["a"] * 400, "labels": [True] * 400}) + "\n"
    Path("many.jsonl").write_text(line * 20_000)
    flags = ["prm", "convert", "many.jsonl", "--out", "rows.jsonl"]
    command = [sys.executable, "-c", "from stepmark.cli.app import main; main()", *flags]
    env = {**os.environ, "PYTHONSAFEPATH": "1"}
    work = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".rows.jsonl.*.part")) and time.monotonic() < deadline:
        time.sleep(0.01)
    work.send_signal(number)
    said = work.communicate(timeout=60)[1]
    assert work.returncode == code
    assert "nothing was written to rows.jsonl" in said
    Path("many.jsonl").unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_inspect_shows_balance_positions_and_marks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("three.jsonl").write_text(
        json.dumps({"problem": "1+1?", "steps": ["[b] 1+1=3", "so 3"], "labels": [0, None]})
        + "\n"
        + json.dumps({"problem": "1+1?", "steps": ["2"], "labels": [0.25], "final_correct": True})
        + "\n"
    )
    assert run(["prm", "inspect", "three.jsonl", "--sample", "2"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "rows 2 (2 different) of 1 problems" in lines
    assert "1 0 1 1 0 50.0% 1" in lines
    assert "2 0 0 0 1 - 0" in lines
    assert "- [b] 1+1=3" in lines
    assert "? so 3" in lines
    assert "0.25 2" in lines


def test_inspect_gives_machines_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    run(["prm", "convert", "prm800k.jsonl", "--out", "rows.jsonl", "--json"])
    capsys.readouterr()
    assert run(["prm", "inspect", "rows.jsonl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labels"] == {"right": 1, "wrong": 1, "between": 0, "masked": 0}
    assert found["origins"] == {"human": 2}


def test_inspect_refuses_a_file_that_was_not_converted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "inspect", "trl.jsonl"]) == 2
    assert "convert it first" in " ".join(capsys.readouterr().err.split())


def test_later_positions_share_a_row() -> None:
    from stepmark import LabelledSteps, Problem
    from stepmark.cli.prm_inspect import position_rows
    from stepmark.prm import label_balance

    problem, labels = Problem("p", "Q", None), (1.0,) * 12 + (0.0,)
    found = position_rows(label_balance([LabelledSteps(problem, ("a",) * 13, labels)]))
    assert len(found) == 11
    assert found[-1] == ["11 on", "2", "1", "0", "0", "33.3%", "1"]


@pytest.fixture
def base(tmp_path: Path) -> str:
    from stepmark.tasks import arith_tokenizer

    arith_tokenizer().save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


def test_inspect_shows_tokens_and_what_a_limit_costs(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"problem": "1 + 1?", "steps": ["1 + 1 = 3", "answer: 3"], "labels": [0, 0]}
    Path("one.jsonl").write_text(json.dumps(row) + "\n")
    command = ["prm", "inspect", "one.jsonl", "--base", base, "--max-tokens", "14"]
    assert run(command) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "14 1 0 1 (50.0%) 1" in lines
    assert "256 0 0 0 (0.0%) 0" in lines
    assert "- 1| + |1| = |3|\\n" in lines
    assert run([*command, "--set", "separator= = ", "--json"]) == 0
    tokens = json.loads(capsys.readouterr().out)["tokens"]
    assert tokens["labels"] == 2
    assert [one["max_tokens"] for one in tokens["truncation"]] == [14, 256]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--max-tokens", "64"], "Add --base FOLDER"),
        (["--set", "separator=x"], "Add --base FOLDER"),
        (["--base", "BASE", "--set", "separators=x"], "Did you mean 'separator'?"),
        (["--base", "BASE", "--set", "separator"], "has no value"),
        (["--base", "BASE", "--set", "mark=tag"], "a tag is needed"),
        (["--base", "./none"], "tokenizer"),
    ],
)
def test_flags_about_tokens_that_cannot_work_are_refused(
    base: str, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("one.jsonl").write_text('{"problem": "1+1?", "steps": ["2"], "labels": [1]}\n')
    given = [base if flag == "BASE" else flag for flag in flags]
    assert run(["prm", "inspect", "one.jsonl", *given]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
