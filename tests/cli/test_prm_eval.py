"""``stepmark prm eval``: its table, its files, what it goes on from, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run
from stepmark.prm.splits import write_problems

SCORERS = '''
import os
from pathlib import Path

calls = 0

def by_words(steps):
    """Low for a step that says it is wrong."""
    global calls
    calls += 1
    with Path("calls").open("a") as file:
        file.write("x")
    if os.environ.get("STOP_AT") == str(calls):
        raise KeyboardInterrupt
    return [0.2 if "wrong" in step else 0.8 for step in steps]

def blind(steps):
    return [0.3 if step.startswith("b") else 0.4 for step in steps]

class Flaky:
    """Fails on some problems while a file says so."""

    key = "flaky@1"

    def segment(self, text):
        return [(0, len(text))]

    def score(self, items):
        from stepmark.types import StepScores

        is_bad = Path("trouble").exists()
        return [
            StepScores((None,) * len(item.steps), self.key, failed=True)
            if is_bad and Path("trouble").read_text() in item.problem.text
            else StepScores(tuple(0.2 if "wrong" in step else 0.8 for step in item.steps), self.key)
            for item in items
        ]
'''


def bench(number: int, label: int) -> dict[str, Any]:
    steps = ["right"] * 3
    if label >= 0:
        steps[label] = "wrong"
    return {
        "id": f"own-{number}",
        "problem": f"Problem {number}?",
        "steps": steps,
        "label": label,
        "final_answer_correct": label < 0,
    }


@pytest.fixture(autouse=True)
def _in_a_folder_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("judges.py").write_text(SCORERS)
    rows = [bench(n, (-1, 0, 1, 2)[n % 4]) for n in range(40)]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(*flags: str) -> dict[str, Any]:
    assert run(["prm", "eval", *flags, "--out", "found"]) == 0
    return json.loads(Path("found/evaluation.json").read_text())


def figures(record: dict[str, Any]) -> dict[str, float]:
    return {one["name"]: one["value"] for one in record["figures"]}


def test_several_scorers_stand_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prm", "eval", "judges.py:by_words", "arithmetic", "--data", "own.jsonl"]
    assert run(command) == 0
    said = capsys.readouterr()
    assert "own.jsonl: read as processbench (guessed from its columns)" in said.err
    assert "own: 40 rows; 30 with a first error, 10 without." in said.out
    lines = said.out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    found = {line.split("  ")[0].strip(): line.split()[-4:] for line in lines}
    assert found["judges.py:by_words"][-3:] == ["0.0", "100.0", "100.0"]
    assert found["arithmetic"][-3:] == ["0.0", "0.0", "100.0"]
    text = " ".join(said.out.split())
    assert "floor: constant guess" in text
    assert "floor: outcome oracle" in text
    assert "floor: arithmetic rule" in text
    assert "arXiv" not in text, "nothing is published for these rows"


def test_machines_get_every_number_with_its_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "eval", "judges.py:by_words", "--data", "own.jsonl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    record = found["records"][0]
    assert {one["name"] for one in record["figures"]} == set(found["formulas"])
    numbers = figures(record)
    assert numbers["processbench_f1"] == numbers["step_auroc"] == 1.0
    assert {one["n"] for one in record["figures"]} == {40, 30, 10, 90, 20}
    assert dict(record["floors"])["outcome oracle"] == pytest.approx(0.5)


def test_what_was_scored_is_not_scored_again() -> None:
    first = evaluation("judges.py:by_words", "--data", "own.jsonl", "--limit", "10")
    assert first["data"][0]["rows"] == 10
    assert len(Path("calls").read_text()) == 10
    second = evaluation("judges.py:by_words", "--data", "own.jsonl")
    assert len(Path("calls").read_text()) == 40
    rows = [json.loads(line) for line in Path("found/scores.jsonl").read_text().splitlines()]
    assert len(rows) == 40
    assert all(row["prediction"] == row["first_error"] for row in rows)
    again = evaluation("judges.py:by_words", "--data", "own.jsonl")
    assert len(Path("calls").read_text()) == 40
    assert again == second
    assert "| judges.py:by_words" in Path("found/table.md").read_text()


def test_a_fitted_threshold_is_said_with_the_part_it_was_fitted_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--data", "own.jsonl", "--dev-share", "0.4"]
    assert run(["prm", "eval", "judges.py:by_words", *flags, "--threshold", "fit"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the threshold was fitted on" in said
    assert "of them by problem, figures are of the other" in said
    assert "a step below 0.5 is called wrong" in said


def test_a_gate_that_is_missed_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prm", "eval", "judges.py:by_words", "--data", "own.jsonl", "--min-f1", "0.9"]
    assert run(command) == 0
    assert run([*command, "arithmetic"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "gate: arithmetic on own: F1 0.0000 is below --min-f1 0.9." in said


def test_rows_that_cannot_be_read_make_the_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("own.jsonl").open("a") as file:
        file.write(json.dumps(bench(99, -1) | {"label": 7}) + "\n")
    assert run(["prm", "eval", "arithmetic", "--data", "own.jsonl"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "1 row cannot be read and is in no figure. The first, line 41" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["arithmetic", "--data", "none.jsonl"], "There is no file"),
        (["arithmetic", "--data", "own.jsonl", "--data", "own.jsonl"], "Two of --data"),
        (["arithmetic", "--data", "own.jsonl", "--threshold", "half"], "or fit"),
        (["arithmetic", "--data", "own.jsonl", "--threshold", "2"], "threshold is 2.0"),
        (["arithmetic", "--data", "own.jsonl", "--aggregation", "median"], "median"),
        (["arith-steps", "--data", "own.jsonl"], "needs the column 'moves'"),
        (["arithmetik", "--data", "own.jsonl"], "Did you mean 'arithmetic'?"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prm", "eval", *flags]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_problems_that_a_checkpoint_was_trained_on_are_told_and_left_out_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(tmp_path, [f"Problem {n}?" for n in range(8)])
    Path("trained.py").write_text(
        SCORERS + "from pathlib import Path\nfrom stepmark.prm import FunctionScorer\n"
        "class Trained(FunctionScorer):\n"
        "    path = Path('.')\n"
        "def made():\n"
        "    return Trained('trained', by_words)\n"
    )
    assert run(["prm", "eval", "trained.py:made", "--data", "own.jsonl"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "trained.py:made, unseen problems" in said
    assert "it was trained on the problems of 8 of 40 rows" in said


@pytest.mark.parametrize("keeps", [True, False])
def test_a_stop_says_how_to_go_on_and_keeps_what_it_can(
    keeps: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [bench(n, n % 4 - 1) for n in range(200)]
    Path("many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["prm", "eval", "judges.py:by_words", "--data", "many.jsonl"]
    flags += ["--out", "kept"] if keeps else []
    monkeypatch.setattr("sys.argv", ["stepmark", *flags])
    monkeypatch.setenv("STOP_AT", "130")
    assert run(flags) == 130
    said = capsys.readouterr().err
    monkeypatch.delenv("STOP_AT")
    assert run(flags) == 0
    if not keeps:
        assert "no score was kept" in said
        assert f"stepmark {' '.join(flags)} --out DIR" in said
        return
    assert f"stepmark {' '.join(flags)}" in said
    assert sum(map(len, Path("calls").read_text().split())) == 130 + 200 - 128


def test_a_subset_of_processbench_is_known_by_its_content(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = tmp_path / "renamed.jsonl"
    lines = (data / "processbench" / "processbench_gsm8k.jsonl").read_text().splitlines()
    renamed.write_text("\n".join(reversed(lines)) + "\n")
    assert run(["prm", "eval", "arithmetic", "--data", str(renamed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"][0]["subset"] == "gsm8k"
    floors = dict(found["records"][0]["floors"])
    assert floors["constant guess"] == pytest.approx(0.248, abs=0.0005)
    assert floors["outcome oracle"] == pytest.approx(0.444, abs=0.0005)
    renamed.write_text("\n".join(lines[:-1]) + "\n")
    assert run(["prm", "eval", "arithmetic", "--data", str(renamed)]) == 0
    assert "arXiv" not in capsys.readouterr().out
    place = str(data / "processbench" / "processbench_gsm8k.jsonl")
    assert run(["prm", "eval", "arithmetic", "--data", place]) == 0
    said = capsys.readouterr().out
    assert "Qwen2.5-Math-PRM-7B            82.4  arXiv:2501.07301" in said
    assert all(len(line.rstrip()) <= 80 for line in said.splitlines())


def test_the_page_shows_every_outcome_and_is_made_again_from_the_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation("judges.py:by_words", "judges.py:blind", "--data", "own.jsonl")
    page = Path("found/report.html").read_bytes()
    table = Path("found/table.md").read_bytes()
    text = page.decode()
    assert {*re.findall(r'data-kind="(\w+)"', text)} == {"found", "clear", "elsewhere", "alarm"}
    assert text.count("<svg") == 5, "positions once, reliability and confusion for each scorer"
    assert "://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text), "it loads nothing"
    for name in ("report.html", "table.md"):
        Path("found", name).unlink()
    assert run(["prm", "report", "found"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert Path("found/report.html").read_bytes() == page
    assert Path("found/table.md").read_bytes() == table


def test_a_page_needs_a_whole_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "report", "elsewhere"]) == 2
    assert "no evaluation ended there" in " ".join(capsys.readouterr().err.split())
    evaluation("arithmetic", "--data", "own.jsonl")
    Path("found/evaluation.json").write_text('{"version": 2}')
    assert run(["prm", "report", "found"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    Path("found/scores.jsonl").write_text('{"scores": 1}\n')
    assert run(["prm", "eval", "arithmetic", "--data", "own.jsonl", "--out", "found"]) == 2
    assert "the file was altered" in " ".join(capsys.readouterr().err.split())


def test_help_says_what_the_f1_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prm", "eval", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "harmonic mean of two accuracies" in said
    assert "it is no F1 of precision and recall" in said


def test_solutions_on_which_a_scorer_failed_are_told_and_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["prm", "eval", "judges.py:Flaky", "--data", "own.jsonl", "--out", "found"]
    Path("trouble").write_text("Problem 4?")
    assert run(given) == 3
    assert "failed on 1 solutions of own, and they count as missed" in " ".join(
        capsys.readouterr().err.split()
    )
    assert run([*given, "--min-f1", "1"]) == 1
    Path("trouble").unlink()
    assert run([*given, "--min-f1", "1"]) == 0
