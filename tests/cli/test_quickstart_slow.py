"""The main job as a new user runs it, whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
STEPMARK = str(Path(sys.executable).with_name("stepmark"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("quickstart")
    done = subprocess.run(
        [STEPMARK, "quickstart"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs" / "quickstart", done.stdout


def test_rl_finds_the_working_and_the_accuracy(job: tuple[Path, str]) -> None:
    summary = json.loads((job[0] / "summary.json").read_text())
    sft, grpo = summary["models"]["sft"], summary["models"]["grpo"]
    assert sft["greedy"]["n"] == grpo["greedy"]["n"] == 500
    assert sft["worked_share"] < 0.2 < 0.9 < grpo["worked_share"]
    assert summary["paired"]["difference"] > 0.4
    assert summary["paired"]["p"] < 1e-20
    assert grpo["sampled"]["accuracy"] > sft["sampled"]["accuracy"] + 0.05


def test_the_job_ends_with_files_and_what_to_try_next(job: tuple[Path, str]) -> None:
    folder, printed = job
    page = (folder / "report.html").read_text()
    assert page.count("<article") == 20
    assert page.count("<svg") >= 3
    assert (folder / "table.md").read_text().splitlines()[0] in printed
    assert "chosen so that RL has something to find" in printed
    commands = re.findall(r"^  stepmark (eval .*)$", printed, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        subprocess.run([STEPMARK, *command.split()], cwd=folder.parents[1], check=True, timeout=120)


def test_running_it_again_makes_nothing_twice(job: tuple[Path, str]) -> None:
    folder = job[0]
    before = (folder / "summary.json").read_bytes()
    metrics = (folder / "grpo" / "metrics.jsonl").read_bytes()
    again = subprocess.run(
        [STEPMARK, "quickstart", "--json"],
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(again.stdout) == json.loads(before)
    assert (folder / "grpo" / "metrics.jsonl").read_bytes() == metrics


def test_the_readme_prints_what_the_job_prints(job: tuple[Path, str]) -> None:
    """Other processors round differently and training parts ways: within 12 points of each."""
    row = r"\| (sft|grpo) +\| +([\d.]+) % \[([\d.]+), ([\d.]+)\]"
    readme = (ROOT / "README.md").read_text()
    found = re.findall(row, job[1])
    said = re.findall(row, readme.split("<!-- quickstart -->")[1].split("<!-- /quickstart -->")[0])
    assert [name for name, *_ in found] == [name for name, *_ in said] == ["sft", "grpo"]
    for ours, theirs in zip(found, said, strict=True):
        assert abs(float(ours[1]) - float(theirs[1])) <= 12
    # The table of all backends begins from the same checkpoint: its rows say the same figures.
    assert re.findall(row, readme) == said * 2
