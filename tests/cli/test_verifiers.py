"""``stepmark verifiers``: what is listed can be loaded, and what is added is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

OWN = '''
def named(completion, gold, unit, digits=3):
    """Right when named."""
    return True

def counts(completion, seen=[]):
    seen.append(completion)
    return 1 / len(seen)
'''


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checks.py").write_text(OWN)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["verifiers", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_has_settings_with_defaults_and_sources(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = said(capsys, "list")
    assert rows["math"]["settings"]["units"] == "strip"
    assert "unknown" not in rows["math"]["settings"]
    assert rows["math"]["from"].startswith("stepmark ")
    assert run(["verifiers", "list"]) == 0
    shown = capsys.readouterr().out
    assert "math  units=strip, strict=false" in shown


def test_show_says_what_a_function_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    row = said(capsys, "show", "checks.py:named")
    assert (row["columns"], row["settings"], row["doc"]) == (
        ["unit"],
        {"digits": 3},
        "Right when named.",
    )
    assert said(capsys, "show", "math")["key"] == "math@2"
    assert run(["verifiers", "show", "mth"]) == 2
    assert "Did you mean 'math'?" in capsys.readouterr().err


def test_an_added_name_is_listed_and_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "add", "mine", "checks.py:named")["file"] == "stepmark.toml"
    assert said(capsys, "list")["mine"]["doc"] == "Right when named."
    assert run(["verify", "x", "--gold", "1", "--verifier", "mine", "--column", "unit=cm"]) == 0


@pytest.mark.parametrize(
    ("name", "reference", "words"),
    [
        ("math", "checks.py:named", "'math' belongs to a registered verifier"),
        ("mine", "checks.py:nmed", "Did you mean 'named'?"),
        ("mine", "absent.py:named", "There is no file"),
        ("not a name", "checks.py:named", "is no name"),
    ],
)
def test_what_cannot_be_used_is_not_remembered(
    name: str, reference: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verifiers", "add", name, reference]) == 2
    assert words in capsys.readouterr().err
    assert not Path("stepmark.toml").exists()


def test_a_remembered_file_that_is_gone_is_listed_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said(capsys, "add", "mine", "checks.py:named")
    Path("checks.py").unlink()
    assert "There is no file" in said(capsys, "list")["mine"]["error"]


def test_check_exits_1_and_names_the_law_that_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["verifiers", "check", "exact"]) == 0
    assert "exact@1 keeps the contract" in capsys.readouterr().out
    assert run(["verifiers", "check", "checks.py:counts", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    broken = [law["law"] for law in report["laws"] if not law["kept"]]
    assert "marking twice gives the same" in broken
    assert run(["verifiers", "check", "checks.py:counts"]) == 1
    assert "broken marking twice gives the same" in capsys.readouterr().out
    assert run(["verifiers", "check", "checks.py:absent"]) == 2
