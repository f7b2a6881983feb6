"""``stepmark eval`` on the command line: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.cli import console
from stepmark.store import RunFolder, read_rows

ENGINE = """
import time
from pathlib import Path
from stepmark.registry import load_file

fake = load_file(Path({fake!r}))


def answer(problem, k, seed):
    return f"The answer is {{problem.gold}}" if seed % 3 else "The answer is 1"


class Engine(fake.FakeEngine):
    tokenizer = fake.FakeTokenizer()

    @classmethod
    def load(cls, model, **settings):
        if model == "absent":
            from stepmark.errors import SetupError
            raise SetupError("There is no model 'absent'.")
        return cls(answer, **settings)
"""
FAKE = Path(__file__).parents[1] / "evals" / "fake_engine.py"


@pytest.fixture
def engine(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(ENGINE.format(fake=str(FAKE)))
    return f"{tmp_path / 'own.py'}:Engine"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: str) -> int:
    return command.run(["eval", *arguments])


def test_run_prints_the_table_the_first_prompt_and_where_things_are(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("run", "--model", "m", "--task", "arith", "--limit", "12", "--engine", engine)
    assert run(*base, "--out", "r") == 0
    said = capsys.readouterr()
    assert "| m     | arith/test |  12 | accuracy |" in said.out
    assert "Verifier: math@2" in said.out
    assert "The first prompt (arith/test/" in said.err
    assert "stepmark eval show r --wrong" in said.err
    table = Path("r/table.md").read_bytes()
    assert run(*base, "--out", "r", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["rows"][0]["n"], value["runs"]) == (12, ["r"])
    assert Path("r/table.md").read_bytes() == table


def test_a_table_that_is_wider_than_the_terminal_is_shown_in_its_main_columns(
    engine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    # A console may have taken its width from COLUMNS when it was imported, by an earlier test.
    monkeypatch.setattr(console.out, "_width", 80)
    name = "runs/grpo-arith-1/checkpoints/best"
    base = ("run", "--model", name, "--model", "m", "--task", "arith", "--limit", "12")
    assert run(*base, "--engine", engine, "--out", "r") == 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(
        r"^model +task +n +accuracy \[95 %\] +no answer +truncated$", said, re.MULTILINE
    )
    assert re.search(r"arith/test +12 +[\d.]+ % \[[\d., ]+\] +0\.0 % +0\.0 %$", said, re.MULTILINE)
    assert "Verifier: math@2" in said
    table = Path("r/m-arith/table.md").read_text()
    assert max(map(len, table.splitlines())) > 80
    assert "| no verdict | tokens | prompt" in table
    monkeypatch.setattr(console.out, "_width", 200)
    assert run(*base, "--engine", engine, "--out", "r") == 0
    assert "| 12 | accuracy |" in re.sub(r" +", " ", capsys.readouterr().out)


def test_several_models_and_tasks_make_one_folder_each(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.jsonl"
    own.write_text("".join(f'{{"question": "{n} + 1?", "answer": {n + 1}}}\n' for n in range(5)))
    models = ("--model", "runs/a/best", "--model", "runs/b/best")
    words = ("--dataset", str(own), "--engine", engine, "--out", "all")
    assert run("run", *models, *words) == 0
    said = capsys.readouterr()
    assert "'question'" in said.err or "question" in said.err  # what was guessed is announced
    names = sorted(path.name for path in Path("all").iterdir())
    assert names == ["runs-a-best-mine", "runs-b-best-mine"]
    assert run("table", "all", "--out", "t.md") == 0
    assert capsys.readouterr().out == Path("t.md").read_text()
    assert run("table", "all", "--out", "t.txt") == 2
    assert run("compare", *(f"all/{name}" for name in names)) == 0
    assert "+0.0 points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "arith", "--dataset", "x.jsonl"), "give one of the two"),
        ((), "give one of the two"),
        (("--task", "arth"), "Did you mean 'arith'?"),
        (("--task", "arith", "--gold-column", "x"), "belong to --dataset"),
        (("--task", "arith", "--verifier", "mth"), "Did you mean 'math'?"),
        (("--task", "arith", "--prompt", "plian"), "Did you mean 'plain'?"),
        (("--task", "arith", "--n", "4"), "temperature 0"),
        (("--task", "arith", "--limit", "0"), "limit is 0"),
        (("--task", "arith", "--model", "m"), "names one model twice"),
    ],
)
def test_bad_input_exits_2_says_why_and_writes_nothing(
    engine: str, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "--model", "m", "--engine", engine, "--out", "r", *words) == 2
    assert said in capsys.readouterr().err
    assert not Path("r").exists()


def test_a_model_that_is_not_there_leaves_no_folder(engine: str) -> None:
    words = ("--task", "arith", "--engine", engine, "--out", "r")
    assert run("run", "--model", "absent", *words) == 2
    assert not Path("r").exists()


def test_show_tasks_and_json(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--task", "arith", "--limit", "12", "--engine", engine, "--out", "r")
    assert run("run", "--model", "m", *words) == 0
    capsys.readouterr()
    assert run("show", "r", "--wrong", "--limit", "1") == 0
    assert "wrong" in capsys.readouterr().out
    assert run("show", "r", "--limit", "3", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 3
    assert run("show", "nowhere") == 2
    assert run("tasks", "--json") == 0
    assert {"arith", "gsm8k"} <= json.loads(capsys.readouterr().out).keys()


def test_regrade_prints_both_accuracies_and_exits_3_for_unreadable_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"response": "The answer is 18", "gold": "18", "model": "big", "is_correct": True},
        {"response": "The answer is 17", "gold": "18", "model": "big", "is_correct": True},
    ]
    Path("f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("regrade", "f.jsonl", "--out", "d") == 0
    said = capsys.readouterr()
    assert "big    2  100.0 %   50.0 %" in said.out
    assert "1 disagreement, each in d/disagreements.jsonl" in said.out
    assert "completion from 'response', gold from 'gold', label from 'is_correct'" in said.err
    with Path("f.jsonl").open("a") as file:
        file.write('{"respo\n')
    assert run("regrade", "f.jsonl", "--out", "d", "--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["groups"][0]["recorded_accuracy"] == 1.0
    assert "1 row could not be used: d/rejects.jsonl" in said.err
    assert read_rows(Path("d/rejects.jsonl"))[0]["line"] == 3
    assert run("regrade", "absent.jsonl", "--out", "e") == 2
    assert not Path("e").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_run_that_the_same_command_finishes(
    engine: str, number: signal.Signals
) -> None:
    script = Path(sys.executable).with_name("stepmark")
    line = [script, "eval", "run", "--model", "m", "--task", "arith", "--first", "60"]
    line += ["--engine", f"{engine}?delay_s=0.02", "--out", "r"]
    started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ.copy())
    shard = Path("r/samples/samples-00000.jsonl")
    until = time.monotonic() + 30
    while not shard.exists() and time.monotonic() < until:
        time.sleep(0.02)
    started.send_signal(number)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 128 + number
    assert "To continue:" in said
    assert "--out r" in said
    assert "Traceback" not in said
    made = len(RunFolder.open(Path("r")).samples.keys())
    assert 0 < made < 60
    again = [word for word in line[1:] if word != "eval"]
    again[again.index(f"{engine}?delay_s=0.02")] = engine
    assert run(*map(str, again)) == 0
    assert len(RunFolder.open(Path("r")).samples.keys()) == 60
