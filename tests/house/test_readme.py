"""What the README shows is run: its verifier, and every command that needs no model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from stepmark.cli.app import run

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line
    for kind, block in BLOCKS
    if kind == "bash"
    for line in block.splitlines()
    if line.startswith("stepmark ")
]


NEEDS_MODEL = [line for line in COMMANDS if "MODEL" in line or "runs/prm/" in line]
STEPS = {
    "input": "Tom has 2 pens and buys 3. How many? Step 1: 2 + 3 = 5 ки\nStep 2: It is 5. ки",
    "label": "Tom has 2 pens and buys 3. How many? Step 1: 2 + 3 = 5 +\nStep 2: It is 5. +",
    "task": "GSM8K",
}
"""A row in the layout of Math-Shepherd."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's verifier and the file that it converts."""
    [source] = [block for kind, block in BLOCKS if kind == "python"]
    (tmp_path / "checks.py").write_text(source)
    (tmp_path / "math_shepherd.jsonl").write_text(json.dumps(STEPS) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in NEEDS_MODEL])
def test_a_command_of_the_readme_works(command: str, desk: Path) -> None:
    assert run(shlex.split(command, comments=True)[1:]) == 0


def test_the_verifier_of_the_readme_is_eight_lines_and_takes_columns(desk: Path) -> None:
    from stepmark import Item, Problem
    from stepmark.verifiers import load_verifier

    source = (desk / "checks.py").read_text().splitlines()
    assert len(source) <= 8
    mark = load_verifier("checks.py:whole_number")
    problem = Problem("p", "How long?", "12", meta={"unit": "cm"})
    texts = ("The answer is 12 cm.", "The answer is 12 m.", "The answer is 13 cm.")
    verdicts = mark([Item(problem, text) for text in texts])
    assert [verdict.correct for verdict in verdicts] == [True, False, False]


@pytest.mark.parametrize("command", NEEDS_MODEL)
def test_a_command_with_a_model_is_spelled_right(command: str, desk: Path) -> None:
    words = shlex.split(command)[1:]
    if "arith" in words and "--dry-run" in words:
        assert run(words) == 0
    else:
        # Only the flags are tried: the model and the hub's data are not here.
        known = {word for word in words if word.startswith("--")}
        verb = words[: 2 if words[0] in ("eval", "prm") else 1]
        assert run([*verb, "--help"]) == 0
        assert known <= {
            "--model",
            "--task",
            "--limit",
            "--out",
            "--backend",
            "--preset",
            "--dry-run",
            "--base",
            "--data",
            "--scorer",
        }


def test_a_preset_takes_another_task_than_its_own(desk: Path) -> None:
    words = ["train", "--preset", "deepseekmath", "--task", "arith", "--model", "MODEL"]
    assert run([*words, "--dry-run"]) == 0


def test_every_verb_of_the_table_exists(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = re.findall(r"^\| `stepmark (\w+)", README, flags=re.MULTILINE)
    assert len(verbs) == 10
    for verb in verbs:
        assert run([verb, "--help"]) == 0
