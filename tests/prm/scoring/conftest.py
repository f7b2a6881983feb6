"""A tiny trained-looking reward model: random weights, saved as a checkpoint with its card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmark.prm import Base, EncodingSettings, base_model, save_step_model
from stepmark.prm.checkpoint import card_of, self_test_rows
from stepmark.types import LabelledSteps, Problem

ROWS = [
    LabelledSteps(Problem("a", "1 + 1?", "2"), ("1 + 1 = 2", "answer: 2"), (1, 1)),
    LabelledSteps(Problem("b", "2 * 3?", "6"), ("2 * 3 = 5", "answer: 5", "so"), (0, 0, 0)),
    LabelledSteps(Problem("c", "2 - 3?", "-1"), ("2 - 3 = -1",), (1,)),
]


@pytest.fixture(scope="session")
def checkpoint(
    tiny_base: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The folder of a reward model over a tiny byte-level base, with these encoding settings."""

    made: dict[str, Path] = {}

    def make(head: str = "classifier", aggregation: str = "min", **settings: Any) -> Path:
        name = repr((head, aggregation, settings))
        if name not in made:
            made[name] = save(head, aggregation, settings)
        return made[name]

    def save(head: str, aggregation: str, settings: dict[str, Any]) -> Path:
        folder = tmp_path_factory.mktemp("prm") / "ckpt"
        base = Base(str(tiny_base()), head=head, seed=1)  # type: ignore[arg-type]
        model = base_model(base, device="cpu")
        card = card_of(
            model,
            encoding=EncodingSettings(**settings),
            aggregation=aggregation,
            self_test=self_test_rows(ROWS),
        )
        save_step_model(folder, model, card)
        return folder

    return make
