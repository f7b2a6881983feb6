"""The recorded 100 x 8 samples: the published way of choosing gives the published numbers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from stepmark.registry import load_file
from stepmark.statistics import accuracy_curve

STUDY = Path(__file__).resolve().parents[3] / "studies" / "recorded_choices.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return load_file(STUDY)


@pytest.fixture(scope="module")
def file(data: Path) -> Path:
    return data / "recorded" / "bon_example_math100x8.jsonl"


def test_the_files_own_verdicts_and_results_give_its_numbers(study: ModuleType, file: Path) -> None:
    recorded = study.as_recorded(study.read(file))
    targets = {
        ("mean", 1): 0.910,
        ("majority", 8): 0.925,
        ("best", 8): 0.940,
        ("pass", 8): 0.960,
        ("best", 2): 0.928,
        ("best", 4): 0.936,
    }
    for (method, k), target in targets.items():
        [point] = accuracy_curve(recorded, method, [k])
        assert round(point.mean, 3) == target
        assert point.draws == 0
        if k in (1, 8):  # whole samples: nothing is rounded but the sum
            assert point.mean == pytest.approx(target, abs=1e-12)


def test_the_verifier_differs_on_one_sample_and_with_maths_own_golds_on_nine(
    study: ModuleType, file: Path, data: Path
) -> None:
    rows = study.read(file)
    ours = study.as_verified(rows)
    assert sum(sum(drawn.right) for drawn in ours) == 729
    assert [line.partition(":")[0] for line in study.differences(rows, ours)] == [
        "problem 72, sample 7"
    ]
    rows = study.read(file, data / "math" / "math_test5000.jsonl")
    ours = study.as_verified(rows)
    assert sum(sum(drawn.right) for drawn in ours) == 737
    found = [line.partition(":")[0] for line in study.differences(rows, ours)]
    assert found == [*(f"problem 3, sample {k}" for k in range(8)), "problem 72, sample 7"]
