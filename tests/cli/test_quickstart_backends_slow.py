"""Several backends in one quickstart, stopped in the middle and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
STEPMARK = str(Path(sys.executable).with_name("stepmark"))
COMMAND = [STEPMARK, "quickstart", "--backends", "dpo,grpo-process", "--minutes", "0.5"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int, str]:
    """Folder of a job that was stopped in its second backend and run again; what the first one had
    logged by then; the exit code of the stop; what was printed in the end."""
    desk = tmp_path_factory.mktemp("backends")
    with subprocess.Popen(
        COMMAND, cwd=desk, stderr=subprocess.PIPE, text=True, env=_one_thread()
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if line.startswith("grpo-process step 2 of 4"):
                first.send_signal(signal.SIGTERM)
                break
        said = first.stderr.read()
        code = first.wait(timeout=120)
    assert "stepmark quickstart --backends dpo,grpo-process" in said
    folder = desk / "runs" / "quickstart"
    logged = (folder / "dpo" / "metrics.jsonl").read_bytes()
    assert not (folder / "grpo-process" / "checkpoints" / "final").exists()
    done = subprocess.run(
        COMMAND,
        cwd=desk,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env=_one_thread(),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, logged, code, done.stdout


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_what_was_stopped_goes_on_and_what_was_finished_is_not_run_again(
    job: tuple[Path, bytes, int, str],
) -> None:
    folder, logged, code, _ = job
    assert code == 143
    assert (folder / "dpo" / "metrics.jsonl").read_bytes() == logged
    steps = (folder / "grpo-process" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in steps] == [0, 1, 2, 3, 4]


def test_one_table_compares_them_with_sft(job: tuple[Path, bytes, int, str]) -> None:
    folder, _, _, printed = job
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary["models"]) == ["sft", "dpo", "grpo-process"]
    for name in ("dpo", "grpo-process"):
        row = summary["models"][name]
        assert row["against_sft"]["second"] == "sft"
        assert row["against_sft"]["n"] == row["greedy"]["n"] == 500
        assert row["minutes"] > 0
        assert row["tokens_learnt"] > 0
        assert f"| {name} " in printed
    table = (folder / "table.md").read_text()
    assert table.splitlines()[0] in printed
    assert max(map(len, printed[printed.index("| model") :].splitlines())) <= 80
    page = (folder / "report.html").read_text()
    assert page.count("<article") == 20
    assert "Side by side" in page


def test_the_pairs_of_dpo_are_what_the_sft_model_wrote(job: tuple[Path, bytes, int, str]) -> None:
    from stepmark.evals import graded_of

    folder = job[0]
    right: dict[str, set[str]] = {}
    wrong: dict[str, set[str]] = {}
    for sample, verdict in graded_of(folder / "dpo-samples"):
        (right if verdict.correct else wrong).setdefault(sample.problem, set()).add(
            sample.completion
        )
    pairs = [json.loads(line) for line in (folder / "dpo-pairs.jsonl").read_text().splitlines()]
    assert pairs
    for pair in pairs:
        assert pair["chosen"] in right[pair["prompt"]]
        assert pair["rejected"] in wrong[pair["prompt"]]
