"""What a resumed run refuses: other models than those that it began with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stepmark.errors import RunError
from stepmark.rl_backends import Grpo, GrpoConfig
from stepmark.training.checkpoint import last_good, load_state, numbered, step_folder


def grpo() -> Grpo:
    return Grpo(GrpoConfig(steps=2, learning_rate=1e-2, beta=0.1, outer=2, save_every=1))


def altered(run: Any, by: float) -> Any:
    """The run's first policy, every weight moved."""
    model = run.policy.model
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(by)
    return model


def test_resuming_with_an_altered_reference_is_refused(bandit, tmp_path) -> None:
    def reference(by: float) -> Any:
        return altered(bandit(tmp_path / "other", resume=True), by)

    straight = bandit(tmp_path / "run")
    straight.train(grpo(), reference=reference(0.01))
    given = load_state(last_good(straight.folder.checkpoints)).given_reference
    assert len(given) == 16
    again = bandit(tmp_path / "run", resume=True)
    with pytest.raises(RunError, match=f"began with another reference(.|\n)*{given} then"):
        again.train(grpo(), reference=reference(0.02))
    with pytest.raises(
        RunError, match=r"none now(.|\n)*fingerprints depended on the number of threads"
    ):
        again.train(grpo())
    assert again.train(grpo(), reference=reference(0.01)).step == 2


def test_a_run_without_a_reference_of_its_own_goes_on_without_one(bandit, tmp_path) -> None:
    bandit(tmp_path / "run").train(grpo())
    other = altered(bandit(tmp_path / "other"), 0.01)
    again = bandit(tmp_path / "run", resume=True)
    with pytest.raises(RunError, match="none then"):
        again.train(grpo(), reference=other)
    assert again.train(grpo()).step == 2


def test_checkpoints_are_in_the_order_of_steps_and_minibatches(tmp_path) -> None:
    places = [(2, None), (2, 1), (2, 10), (3, None), (999_999, None), (1_000_000, 12_345)]
    for step, minibatches in reversed(places):
        step_folder(tmp_path, step, minibatches).mkdir()
    assert numbered(tmp_path) == [step_folder(tmp_path, *place) for place in places]
