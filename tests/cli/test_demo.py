"""`stepmark demo` runs in a base install, explains itself, and writes its page when asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepmark.cli.app import run


def test_it_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'matplotlib', 'datasets', 'jinja2'):\n"
        "    sys.modules[name] = None\n"
        "from stepmark.cli.app import run\n"
        f"sys.exit(run(['demo', '--json', '--out', {str(tmp_path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["responses"] == 200
    assert Path(told["page"]) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_people_get_tables_an_explanation_and_the_next_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["demo"]) == 0
    said = capsys.readouterr().out
    for words in ("math says right", "flour/1", "our label", "stepmark verify"):
        assert words in said


def test_json_lists_every_disagreement_with_both_verdicts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["demo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for row in told["disagreements"]:
        assert row["verdicts"]["math"]["correct"] != row["verdicts"]["exact"]["correct"]


def test_a_file_as_folder_is_refused_before_anything_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    assert run(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "Name a folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"


def test_a_terminal_that_knows_only_ascii_is_served() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from stepmark.cli.app import main; main(['demo'])"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"math says right" in done.stdout
