"""docs/prm-scoring.md is true: its commands and examples run, its table names every scorer."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.prm import AGGREGATIONS, scorers

PAGE = (Path(__file__).resolve().parents[3] / "docs/prm-scoring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)


def block(kind: str) -> str:
    [found] = [text for name, text in BLOCKS if name == kind]
    return found


def test_the_commands_exit_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(block("jsonl"), encoding="utf-8")
    for command in block("bash").strip().splitlines():
        line, _, code = command.partition("# exit ")
        assert run(shlex.split(line)[1:]) == int(code), line
    rows = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [row["score"] for row in rows] == [1.0, 0.0]
    named = re.findall(r"`(\w+)`", PAGE[PAGE.index("has the columns of each row and") :][:150])
    assert set(named) <= set(rows[0])


def test_the_example_gives_what_the_page_shows() -> None:
    test = doctest.DocTestParser().get_doctest(block("python"), {}, "example", "page", 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_page_names_every_scorer_and_aggregation() -> None:
    shipped = {point.name for point in entry_points(group="stepmark.scorers")}
    assert shipped <= set(scorers.names())
    for name in (*shipped, *AGGREGATIONS):
        assert f"`{name}`" in PAGE
