"""docs/prm-evaluation.md is true: commands, figures, files, and the numbers of its example."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.prm.eval_report import FORMULAS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "prm-evaluation.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the page's file in it."""
    [rows] = [block for kind, block in BLOCKS if kind == "jsonl"]
    (tmp_path / "own.jsonl").write_text(rows, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_commands_exit_as_the_page_says_and_leave_its_files(desk: Path) -> None:
    [block] = [block for kind, block in BLOCKS if kind == "bash"]
    lines = block.strip().splitlines()
    assert len(lines) == 5
    for command in lines:
        line, _, code = command.partition("# exit ")
        assert run(shlex.split(line)[1:]) == int(code), line
    for path in (desk / "found").iterdir():
        assert f"| `{path.name}` |" in TEXT


def test_every_figure_is_explained() -> None:
    for name in FORMULAS:
        assert f"| `{name}` |" in TEXT


def test_the_example_in_python_gives_what_the_page_shows(desk: Path) -> None:
    [source] = [block for kind, block in BLOCKS if kind == "python"]
    test = doctest.DocTestParser().get_doctest(source, {}, "example", PAGE.name, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_numbers_of_the_worked_example_are_printed(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(data / "processbench")
    [block] = [block for _, block in BLOCKS if block.startswith("$ ")]
    command, *shown = block.strip().splitlines()
    assert run(shlex.split(command)[2:]) == 0
    said = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    assert {line for line in shown if line not in said} == set()
