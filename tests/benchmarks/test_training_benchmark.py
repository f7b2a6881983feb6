"""The benchmarks of training run at tiny sizes, without the peer, and keep others' results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=FOLDER,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_training_is_measured_by_itself_and_the_results_of_others_stay(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"verifier": {"kept": 1}}))
    done = run("training.py", "--quick", "--peer", "none", "--out", str(out))
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert results["verifier"] == {"kept": 1}
    names = {"name", "unit", "ours", "peer", "ratio", "low", "high", "goal", "reached"}
    assert all(names <= set(row) for row in results["training"]["rows"])
    assert {"stepmark", "torch", "transformers"} <= set(results["training"]["about"]["versions"])
    page = (tmp_path / "training.md").read_text()
    assert all(row["name"] in page for row in results["training"]["rows"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "training.md"]


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_runs_dry_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = run("gpu.py", "--dry", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "| tiny | Stepmark |" in done.stdout
    assert "mean nothing" in done.stdout
    assert not out.exists()
