"""The benchmark of refreshing runs, tells its seconds apart, and keeps other results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "prm_refresh.py"


@pytest.mark.slow
def test_seconds_inside_and_outside_the_model_are_all_there_are(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    out.write_text('{"verifier": {"about": 1}}')
    words = [sys.executable, str(SCRIPT), "--quick", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["verifier"] == {"about": 1}
    refreshed = found["prm_refresh"]
    parts = dict(refreshed["cpu_s"])
    assert parts.pop("all") == pytest.approx(sum(parts.values()), abs=0.02)
    assert 0 < refreshed["share_outside"] < 1
    assert refreshed["rows"]["replayed"] > 0
    assert refreshed["about"]["command"] == "python benchmarks/prm_refresh.py --quick"
