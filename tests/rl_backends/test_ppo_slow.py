"""PPO raises the accuracy of a small SFT model on new `arith` problems, and its critic learns.

One seed and a short budget, by the recipe that `tests/campaign` runs on several; beside each
threshold is what seeds 0, 1, 2 reached, one thread of an x86-64 core, 2026-11-30. With half as many
problems a step one of three seeds gained nothing.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow


def test_ppo_raises_the_accuracy_on_held_out_problems(
    learning: ModuleType, taught: Path, right_before: list[bool], tmp_path: Path
) -> None:
    ppo = learning.learnt("ppo", tmp_path, taught, learning.SEED)
    found = learning.paired(learning.right(ppo), right_before)
    rows = learning.metrics(ppo)
    print(f"ppo: {found.difference:+.3f}, p = {found.p:.2g}")
    assert found.difference > 0.05, "0.46, 0.26 and 0.34 were reached"
    assert found.p < 0.01
    rewards = [row["reward"] for row in rows]
    gain = statistics.fmean(rewards[-5:]) - statistics.fmean(rewards[:3])
    foreseen = [row["critic/explained_variance"] for row in rows]
    print(f"reward {gain:+.3f}, explained variance {foreseen}")
    assert gain > 0.1, "0.28, 0.12 and 0.11 were reached"
    assert foreseen[0] == pytest.approx(0, abs=1e-6)
    assert statistics.fmean(foreseen[-5:]) > 0.03, "0.04, 0.09 and 0.07 were reached"
