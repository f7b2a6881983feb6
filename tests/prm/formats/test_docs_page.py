"""docs/prm-data.md is true: its commands run, its tables name every format, setting and reason."""

from __future__ import annotations

import doctest
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.prm.formats import RejectReason, Repairs, formats
from stepmark.prm.formats.registry import settings_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "prm-data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "bash" for line in block.strip().splitlines()]
ROWS = {
    found[1]: found[0]
    for line in PAGE.splitlines()
    if (found := re.match(r"\| `([\w-]+)` \| .*", line))
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the page's files in it."""
    shepherd, marked = [block for kind, block in BLOCKS if kind == "jsonl"]
    (tmp_path / "shepherd.jsonl").write_text(shepherd, encoding="utf-8")
    (tmp_path / "marked.jsonl").write_text(marked, encoding="utf-8")
    [source] = [b for kind, b in BLOCKS if kind == "python" and b.startswith("# marks.py")]
    (tmp_path / "marks.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_exit_as_the_page_says(desk: Path) -> None:
    assert len(COMMANDS) == 5
    for command in COMMANDS:
        line, _, code = command.partition("# exit ")
        assert run(shlex.split(line)[1:]) == int(code), line
    assert '"labels": [1, 0]' in (desk / "mine.jsonl").read_text()


def test_the_examples_give_what_the_page_shows(desk: Path) -> None:
    [source] = [block for kind, block in BLOCKS if kind == "python" and block.startswith(">>>")]
    test = doctest.DocTestParser().get_doctest(source, {}, "example", "prm-data.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("name", formats.names())
def test_the_table_has_every_format_with_all_its_settings(name: str) -> None:
    for setting, default in settings_of(formats.load(name)).items():
        assert f"`{setting}=" in ROWS[name]
        shown = re.search(rf'`{setting}="?([^`"\\]*)', ROWS[name])
        assert shown
        assert shown[1] == default


def test_the_page_names_every_repair_and_every_reason() -> None:
    for repair in fields(Repairs):
        assert f"| `{repair.name}={repair.default}\\|" in PAGE
    for reason in RejectReason:
        assert f"`{reason}`" in PAGE
