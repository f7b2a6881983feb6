"""docs/prm-refresh.md is true: commands and their exit codes, files, settings, the example."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run
from stepmark.prm.formats import write_labelled_steps
from stepmark.prm.replay.config import RefreshConfig

PAGE = Path(__file__).resolve().parents[3] / "docs" / "prm-refresh.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, flags=re.DOTALL)
SMALL = ("algorithm.steps=2", "algorithm.rows_per_step=8", "gate.resamples=100")


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_prm: Path, sums: Callable[..., Any]
) -> Path:
    """A folder with the page's files in it."""
    for name, word in (("first", "no"), ("new", "nu"), ("newer", "na")):
        write_labelled_steps(tmp_path / f"{name}.jsonl", sums(60, word))
    shutil.copytree(tiny_prm, tmp_path / "PRM")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_commands_exit_as_the_page_says_and_leave_its_files(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [block for kind, block in BLOCKS if kind == "bash"]
    sets = [word for one in SMALL for word in ("--set", one)]
    for number, command in enumerate(block.strip().splitlines()):
        line, _, code = command.partition("# exit ")
        assert run([*shlex.split(line)[1:], *sets, "--json"]) == int(code), line
        found = json.loads(capsys.readouterr().out)
        assert found["round"] == max(number, 1)
        assert (desk / "runs").exists() is (number > 0)
    assert not found["accepted"]
    assert found["model"] == str((desk / "runs/refresh/rounds/1/rm").resolve())
    assert found["matrix"]["rejected"] == [2]
    assert [report["round"] for report in found["admission"]] == [2]
    names = {path.name for path in (desk / "runs" / "refresh").iterdir() if path.name[0] != "."}
    for name in names - {"rounds"}:
        assert f"`{name}`" in TEXT, name
    inside = {path.name for path in (desk / "runs/refresh/rounds/1").iterdir()}
    assert inside == {"rm", "manifest.json", "metrics.jsonl", "timings.json"}


def test_what_a_dry_run_says_is_what_is_drawn(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split("prm refresh PRM --new new.jsonl --history first.jsonl --buffer B --json")
    sets = [word for one in (*SMALL, "model.device=cpu") for word in ("--set", one)]
    assert run([*words, *sets, "--dry-run"]) == 0
    foreseen = json.loads(capsys.readouterr().out)
    assert not (desk / "B").exists()
    assert run([*words, *sets]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["mixture"] == foreseen["mixture"]


def test_what_cannot_work_is_refused_with_what_to_do(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.jsonl").write_text("")
    base = "prm refresh PRM --buffer B"
    cases = {
        "--new empty.jsonl": "has no row",
        "--new new.jsonl --replay 1": "replay.share is 1",
        "--new new.jsonl --replay-of all": "mixture",
        "--new new.jsonl --set replay.shares=1": "share",
        "--new new.jsonl --set rollout.seed=1": "rollout",
    }
    for words, said in cases.items():
        assert run([*shlex.split(base), *shlex.split(words)]) == 2, words
        assert said in capsys.readouterr().err
    assert not Path("B", "shard-00001.jsonl").exists()


def test_every_setting_of_the_page_has_its_default() -> None:
    plain = RefreshConfig().settings()
    rows = [line.split("|")[1:3] for line in TEXT.splitlines() if line.startswith("| `gate.")]
    assert len(rows) == 5
    for names, values in rows:
        for name, value in zip(names.split(","), values.split(","), strict=True):
            key = name.strip(" `").partition(".")[2]
            assert str(plain["gate"][key]) == value.strip(" `")
    assert plain["replay"]["share"] == 0.1
    assert plain["replay"]["error_share"] == [0.35, 0.65]
    assert plain["algorithm"]["patience"] == 3


def test_the_example_in_python_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [source] = [block for kind, block in BLOCKS if kind == "python"]
    exec(compile(source, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == "True True\n"
