"""Rows for tests of the replay buffer, and a tiny reward model to refresh."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepmark.prm.formats import write_labelled_steps
from stepmark.types import LabelledSteps, Problem

ROOT = Path(__file__).resolve().parents[3]


def _row(
    problem: str, steps: Sequence[str] = ("a", "b"), labels: Sequence[Any] = (1, 1), **more: Any
) -> LabelledSteps:
    return LabelledSteps(Problem(problem, problem, None), tuple(steps), tuple(labels), **more)


def _sums(count: int, word: str, seed: int = 0) -> list[LabelledSteps]:
    draw = random.Random(seed)
    found: list[LabelledSteps] = []
    for number in range(count):
        bad = draw.choice([None, 0, 1])
        steps = [f"{word if n == bad else 'ok'} {number}" for n in range(2)]
        labels = [int(bad is None or n < bad) for n in range(2)]
        found.append(_row(f"{word} sum {number}?", steps, labels, origin="rule"))
    return found


@pytest.fixture(scope="session")
def row() -> Callable[..., LabelledSteps]:
    """Makes a labelled solution."""
    return _row


@pytest.fixture(scope="session")
def sums() -> Callable[..., list[LabelledSteps]]:
    """Makes small sums; a wrong step has a given word in it."""
    return _sums


@pytest.fixture(scope="session")
def tiny_prm(tiny_base: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny reward model that has learnt a little from sums with ``no``."""
    from stepmark.prm.train import prepare, train_step_model
    from stepmark.prm.train_config import PrmConfig

    place = tmp_path_factory.mktemp("prm")
    write_labelled_steps(place / "rows.jsonl", _sums(60, "no"))
    config = PrmConfig.model_validate(
        {
            "model": {"base": str(tiny_base()), "device": "cpu"},
            "data": {"rows": [str(place / "rows.jsonl")], "held_out": 0.2},
            "encoding": {"max_tokens": 100},
            "algorithm": {
                "steps": 4,
                "rows_per_step": 8,
                "learning_rate": 5e-3,
                "tokens_per_microbatch": 1000,
            },
        }
    )
    return train_step_model(prepare(config), place / "run").final


@pytest.fixture(scope="session")
def example() -> Any:
    """The module ``examples/tiny_refresh.py``."""
    path = ROOT / "examples" / "tiny_refresh.py"
    spec = importlib.util.spec_from_file_location("tiny_refresh", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module
