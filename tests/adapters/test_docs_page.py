"""The page on other trainers is run: its examples, its commands, its line of the example."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from stepmark.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
EXAMPLES = [block for kind, block in BLOCKS if kind == "python" and block.startswith(">>>")]
COMMANDS = [line for kind, block in BLOCKS if kind == "bash" for line in block.strip().splitlines()]


@pytest.fixture(autouse=True)
def _beside_the_verifier_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [source] = [block for kind, block in BLOCKS if block.startswith("# physics.py")]
    (tmp_path / "physics.py").write_text(source)
    monkeypatch.chdir(tmp_path)


def test_the_examples_give_what_the_page_shows() -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for number, source in enumerate(EXAMPLES):
        runner.run(parser.get_doctest(source, {}, f"example {number}", "adapters.md", 0))
    assert (runner.failures, len(EXAMPLES)) == (0, 2)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_as_shown(command: str) -> None:
    assert run(shlex.split(command)[1:]) == 0


def test_the_line_for_a_trainer_stands_in_the_example() -> None:
    [line] = [block.strip() for _, block in BLOCKS if block.startswith("reward_funcs=")]
    assert line in (ROOT / "examples" / "trl_grpo.py").read_text()


def test_the_versions_of_the_page_are_those_that_are_tried() -> None:
    for peer, version in re.findall(r"\b(TRL|verl) (\d+\.\d+\.\d+)", PAGE):
        pins = (ROOT / "constraints" / f"{peer.lower()}.txt").read_text()
        assert f"\n{peer.lower()}=={version}\n" in pins
