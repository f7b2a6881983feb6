"""docs/prm-annotation.md is true: commands, settings, defaults, reasons."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run
from stepmark.cli.prm_annotate import KNOWN, SHAPING
from stepmark.prm.annotation import AnnotationSettings, StepReason
from stepmark.prm.steps import SPLITTERS
from stepmark.tasks import arith_tokenizer, tiny_llama

PAGE = Path(__file__).resolve().parents[3] / "docs" / "prm-annotation.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)
ROWS = {
    found[1]: found
    for line in TEXT.splitlines()
    if (found := re.match(r"\| (`.*?`) \| (.*?) \|", line))
}


def test_the_commands_exit_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [rows] = [block for kind, block in BLOCKS if kind == "jsonl"]
    Path("rows.jsonl").write_text(rows, encoding="utf-8")
    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=0, layers=1, width=16).save_pretrained("MODEL")
    tokenizer.save_pretrained("MODEL")
    [block] = [block for kind, block in BLOCKS if kind == "bash"]
    commands = block.strip().splitlines()
    assert len(commands) == 6
    for command in commands:
        line, _, code = command.partition("# exit ")
        assert run(shlex.split(line)[1:]) == int(code), line
    for name in ("rows.jsonl", "math-shepherd.jsonl", "summary.json", "config.toml"):
        assert Path("labels", name).is_file()
        assert f"`{name}`" in TEXT
    assert Path("bounded/left_out.jsonl").is_file()


def test_the_example_gives_what_the_page_shows() -> None:
    [source] = [block for kind, block in BLOCKS if kind == "python"]
    test = doctest.DocTestParser().get_doctest(source, {}, "example", PAGE.name, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("name", KNOWN)
def test_every_setting_is_in_the_table(name: str) -> None:
    assert any(f"`{name}`" in key for key in ROWS)


@pytest.mark.parametrize("name", [*SHAPING, "seed"])
def test_the_defaults_are_those_of_the_code(name: str) -> None:
    value: Any = getattr(AnnotationSettings(), name)
    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    shown = shown or (f'"{value}"' if isinstance(value, str) else f"{value:g}")
    assert ROWS[f"`{name}`"][2] == f"`{shown}`"


def test_every_reason_and_splitter_is_named() -> None:
    for reason in StepReason:
        assert f"`{reason}`" in ROWS
    for name in SPLITTERS:
        assert f"`{name}`" in TEXT
