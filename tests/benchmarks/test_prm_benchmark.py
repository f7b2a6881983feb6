"""The benchmark of reward-model training runs, and all its sides have the same loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "prm.py"


def test_all_sides_learn_from_the_same_rows_and_other_results_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    out.write_text('{"verifier": {"about": 1}}')
    words = [sys.executable, str(SCRIPT), "--quick", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["verifier"] == {"about": 1}
    losses = found["prm_training"]["first_loss"]
    assert len(losses) == 4
    assert all(loss == pytest.approx(losses["stepmark"], abs=1e-5) for loss in losses.values())
    assert found["prm_training"]["about"]["command"] == "python benchmarks/prm.py --quick"
