"""A writer that is killed at any moment leaves a prefix of what it wrote, and work goes on."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepmark.store import RunFolder, Sample, read_rows

WRITE = """
import sys
from pathlib import Path
from stepmark.store import RunFolder, Sample
run = RunFolder.create(Path(sys.argv[1]), {"seed": 0}, {}, resume=True)
with run:
    n = len(run.samples.keys())
    print("writing", flush=True)
    while True:
        row = Sample(f"p{n}", 0, 0, "q", "q", "x" * (n * 37 % 5000), None, None, "stop", "1")
        run.samples.append([row])
        run.log_metrics(n, {"n": n})
        n += 1
"""


@pytest.mark.parametrize("seed", range(4))
def test_what_a_killed_writer_leaves_is_a_prefix(tmp_path: Path, seed: int) -> None:
    random.seed(seed)
    seen = 0
    for _ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        time.sleep(random.uniform(0.005, 0.15))
        writer.kill()
        writer.communicate()
        run = RunFolder.open(tmp_path / "r")
        ids = [row.id for row in run.samples.rows()]
        assert ids == [f"p{n}" for n in range(len(ids))]
        assert all(len(row.completion) == int(row.id[1:]) * 37 % 5000 for row in run.samples.rows())
        assert len(ids) >= seen
        logged = [row["n"] for row in read_rows(run.path / "metrics.jsonl")]
        # Each of the two kills may fall between a sample and its metrics.
        assert len(ids) - 2 <= len(set(logged)) <= len(ids)
        seen = len(ids)
    with run:
        run.samples.append([Sample("last", 0, 0, "q", "q", "x", None, None, "stop", "1")])
    assert len(list(run.samples.rows())) == seen + 1
