"""The scripts in examples/ run as their first lines say, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_verifier.py", ["promises", "all-units-format", "0.0  many_boxes"]),
        ("shaped_reward.py", ["sum(0.8*first(choice, math)", "1.00  [1.0, 1.0, 1.0]  equal"]),
    ],
)
def test_an_example_runs_alone(name: str, said: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [text for text in said if text not in done.stdout] == []
