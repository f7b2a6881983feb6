"""The page for users is run: examples, commands, config, and its verifier of eight lines."""

from __future__ import annotations

import doctest
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.config import RewardTable
from stepmark.types import Reason
from stepmark.verifiers import load_verifier, registry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
EXAMPLES = [block for kind, block in BLOCKS if kind == "python" and block.startswith(">>>")]
FILES = [block for kind, block in BLOCKS if kind == "python" and block.startswith("# ")]
COMMANDS = [block.strip().splitlines() for kind, block in BLOCKS if kind == "bash"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the page's files in it."""
    for source in FILES:
        (tmp_path / source.partition("\n")[0].removeprefix("# ")).write_text(source)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_give_what_the_page_shows() -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    names: dict[str, object] = {}
    for number, source in enumerate(EXAMPLES):
        test = parser.get_doctest(source, names, f"example {number}", "verifiers.md", 0)
        runner.run(test, clear_globs=False)
        names.update(test.globs)
    assert (runner.failures, len(EXAMPLES) > 8) == (0, True)


@pytest.mark.parametrize("lines", COMMANDS, ids=lambda lines: lines[0][:40])
def test_the_commands_work_one_after_the_other(lines: list[str], desk: Path) -> None:
    for line in lines:
        assert line.startswith("stepmark ")
        assert run(shlex.split(line)[1:]) == 0, line


def test_the_config_of_the_page_loads_and_its_verifiers_are_there() -> None:
    [source] = [block for kind, block in BLOCKS if kind == "toml"]
    shares = RewardTable.model_validate(tomllib.loads(source)["reward"]).verifiers
    keys = [load_verifier(share.reference).key.partition("@")[0] for share in shares]
    assert keys == ["all-math-format", "first-choice-math"]
    assert [share.weight for share in shares] == [1, 0.5]


def test_links_lead_to_pages_and_headings() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs"
    for name in ("verifiers.md", "verifier-rules.md"):
        text = (folder / name).read_text(encoding="utf-8")
        for page, _, heading in re.findall(r"\]\(([\w-]+\.md)(#([\w-]+))?\)", text):
            target = (folder / page).read_text(encoding="utf-8")
            heads = [
                head.lower().replace(" ", "-") for head in re.findall(r"^#+ (.*)$", target, re.M)
            ]
            assert not heading or heading in heads, f"{name}: {page}#{heading}"


def test_your_own_is_eight_lines() -> None:
    [source] = FILES
    assert len([line for line in source.splitlines() if line.strip()]) <= 8


def test_every_shipped_verifier_and_every_reason_is_on_the_page() -> None:
    entries = registry.entries().values()
    shipped = [entry.name for entry in entries if entry.source.startswith("stepmark ")]
    assert [name for name in shipped if not re.search(rf"^\| `{name}[`(]", PAGE, re.M)] == []
    assert [reason for reason in Reason if f"`{reason}`" not in PAGE] == []


@pytest.mark.parametrize("name", ["math", "exact", "numeric", "choice", "format", "length"])
def test_the_table_of_settings_has_every_setting(name: str) -> None:
    from stepmark.cli.verifiers import describe

    [row] = re.findall(rf"^\| `{name}` \|.*$", PAGE, re.M)
    settings = describe(load_verifier(name))["settings"]
    assert [setting for setting in settings if f"`{setting}`" not in row] == []
