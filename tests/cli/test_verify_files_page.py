"""The page on files of responses is run, with the files that stand on it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from stepmark.cli.app import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verify-files.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.splitlines()
]


def test_the_commands_work_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"`(\w+\.jsonl)`[:,]\n\n```jsonl\n(.*?)```", TEXT, flags=re.DOTALL)
    for name, content in blocks:
        Path(name).write_text(content)
    assert len(blocks) == 4
    assert len(COMMANDS) == 6
    for line in COMMANDS:
        assert line.startswith("stepmark ")
        assert run(shlex.split(line)[1:]) == 0, line
    listed = re.findall(r"^\| (`.+`) \| [^|]+ \|$", TEXT, flags=re.MULTILINE)
    promised = {name for cell in listed for name in re.findall(r"`(\w+\.\w+)`", cell)}
    assert len(promised) == 6
    assert promised - {"rejects.jsonl"} <= {path.name for path in Path("marked").iterdir()}
    assert json.loads(Path("joined/verdicts.jsonl").read_text())["correct"]


def test_every_layout_stands_on_the_page() -> None:
    from stepmark.evals.layouts import LAYOUTS

    named = set(re.findall(r"^\| `([a-z-]+)` \|", TEXT, flags=re.MULTILINE))
    assert {layout.name for layout in LAYOUTS} == named
