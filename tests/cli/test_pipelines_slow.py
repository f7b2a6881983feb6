"""The commands of docs/pipelines.md, as they stand there: each pipeline runs to its end."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
SECTIONS = {
    part.splitlines()[0].partition(":")[0]: part for part in re.split(r"^## ", PAGE, flags=re.M)[1:]
}


def commands(section: str) -> list[str]:
    """The lines of the blocks of a section."""
    blocks = re.findall(r"```sh\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def run(line: str) -> None:
    """One command, in this process; it ends as the page says."""
    said, _, comment = line.partition("  # ")
    allowed = [int(code) for code in re.findall(r"\d+", comment)] or [0]
    words = shlex.split(said)
    if words[0] == "python":
        import runpy

        before, sys.argv = sys.argv, words[1:]
        try:
            runpy.run_path(words[1], run_name="__main__")
        finally:
            sys.argv = before
        return
    assert words[0] == "stepmark"
    assert command.run(words[1:]) in allowed, line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the policy, its samples and the reward model lie."""
    place = tmp_path_factory.mktemp("pipelines")
    (place / "examples").symlink_to(ROOT / "examples")
    before = Path.cwd()
    os.chdir(place)
    try:
        for line in (*commands("What all three begin with"), *commands("Math-Shepherd")[:2]):
            run(line)
    finally:
        os.chdir(before)
    return place


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.chdir(folder)


def test_math_shepherd_chooses_among_samples_and_rewards_steps() -> None:
    for line in commands("Math-Shepherd")[2:]:
        run(line)
    samples = RunFolder.open(Path("runs/ppo")).samples
    (key,) = samples.score_keys()
    assert key.startswith("prm@")
    assert len(samples.scores(key)) == 30 * 16 * 8
    assert 0 <= accuracy("runs/after-ppo") <= 1


def test_iterative_grpo_refreshes_its_reward_model_within_the_budget() -> None:
    for line in commands("DeepSeekMath"):
        run(line)
    rows = {row["step"]: row for row in RunFolder.open(Path("runs/iterative")).metrics()}
    name = "reward_model/prm"
    assert [step for step in rows if f"{name}/fresh_rows" in rows[step]] == [10, 20, 30]
    for step in (10, 20, 30):
        sampled = sum(rows[n]["num_tokens"] for n in range(step - 9, step + 1))
        assert 0 < rows[step][f"{name}/annotation/tokens"] <= sampled
        assert rows[step][f"{name}/fresh_rows"] > 0
    versions = json.loads(Path("runs/iterative/reward_models/versions.json").read_text())["prm"]
    accepted = sum(rows[step].get(f"{name}/accepted", 0) for step in (10, 20, 30))
    assert len(versions) <= 1 + accepted
    assert 0 <= accuracy("runs/after-iterative") <= 1


def test_rlhf_learns_from_an_outcome_reward_model_alone() -> None:
    for line in commands("InstructGPT"):
        run(line)
    samples = RunFolder.open(Path("runs/rlhf")).samples
    (key,) = samples.score_keys()
    rows = samples.scores(key).values()
    assert len(rows) == 30 * 128
    assert all(len(row.scores) == 1 for row in rows), "one number for a whole completion"
    assert 0 <= accuracy("runs/after-rlhf") <= 1


def accuracy(folder: str) -> float:
    """Of an evaluation."""
    from stepmark.evals import graded_of

    graded = [verdict.correct is True for _, verdict in graded_of(Path(folder))]
    return sum(graded) / len(graded)
