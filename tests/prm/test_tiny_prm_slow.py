"""The example that trains a reward model from nothing: errors on problems never seen are found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from stepmark.prm import load_scorer
from stepmark.types import Problem, StepItem

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny_prm.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("tiny_prm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_solution_of_the_example_is_labelled_up_to_its_first_error(example: Any) -> None:
    found = list(example.rows(300, seed=0))
    for row in found:
        assert all(label == 1 for label in row["labels"][:-1])
        ends_well = row["steps"][-1].startswith("answer") and row["labels"][-1] == 1
        assert ends_well or row["labels"][-1] == 0
    assert 0.5 < sum(row["labels"][-1] == 0 for row in found) / len(found) < 0.7


@pytest.mark.slow
def test_the_tiny_model_converges_and_finds_first_errors(example: Any, tmp_path: Path) -> None:
    result = example.train(tmp_path, seed=0)
    assert result.converged, result.why
    assert result.best_metric == "f1"
    assert result.best_value > 0.88
    scorer = load_scorer(str(result.best))
    text = "Tom has 6 apples . then Tom buys 2 more . then Tom gives away 3 . how many apples now ?"
    wrong = ("step : 6 + 2 = 8 ;", "step : 8 - 3 = 4 ;")
    scores = scorer.score([StepItem(Problem("tom", text, "5"), wrong)])[0].scores
    assert scores[0] is not None
    assert scores[1] is not None
    assert scores[1] < 0.5 < scores[0]
