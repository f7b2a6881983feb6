"""docs/prm-search.md is true: its commands and examples run, its table names every metric."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.evals.metrics import METHODS
from stepmark.tasks import arith_tokenizer, tiny_llama
from stepmark.training.quiet import no_progress_bars

PAGE = (Path(__file__).resolve().parents[3] / "docs/prm-search.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)


def block(kind: str) -> str:
    [found] = [text for name, text in BLOCKS if name == kind]
    return found


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the quickstart's model before it has learnt anything."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs/quickstart/sft/checkpoints/best"
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0).save_pretrained(place)
        tokenizer.save_pretrained(place)
    return tmp_path


def test_the_commands_of_the_page_run(quickstart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in block("bash").strip().splitlines():
        sampled = " eval run " in line or " search " in line
        words = [*shlex.split(line)[1:], *(["--max-tokens", "12"] if sampled else [])]
        assert run(words) == 0, capsys.readouterr().err
    assert (quickstart / "runs/curve.svg").is_file()
    assert (quickstart / "runs/beam/candidates").is_dir()


def test_the_example_gives_what_the_page_shows() -> None:
    test = doctest.DocTestParser().get_doctest(block("python"), {}, "example", "page", 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_page_names_every_metric() -> None:
    for name in METHODS:
        assert f"| `{name}@K" in PAGE
