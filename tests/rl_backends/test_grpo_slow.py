"""GRPO with outcome rewards, once and in outer iterations, raises the accuracy on new problems."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["grpo", "grpo-iterative"])
def test_grpo_raises_the_accuracy_on_held_out_problems(
    name: str, learning: ModuleType, taught: Path, right_before: list[bool], tmp_path: Path
) -> None:
    made = learning.learnt(name, tmp_path, taught, learning.SEED)
    found = learning.paired(learning.right(made), right_before)
    rows = learning.metrics(made)
    print(f"{name}: {found.difference:+.3f}, p = {found.p:.2g}, KL {[row['kl'] for row in rows]}")
    assert found.difference > 0.1
    assert found.p < 0.001
    outer = 3 if name == "grpo-iterative" else 1
    fresh = [row["step"] for row in rows if row["kl"] == pytest.approx(0, abs=1e-6)]
    starts = [1 + len(rows) * part // outer for part in range(outer)]
    assert fresh == starts, "the reference is the policy where an outer iteration begins"
