"""Eleven kills with SIGKILL over the backends: what is resumed ends as what was not killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from stepmark.training.checkpoint import last_good

pytestmark = pytest.mark.slow

IN_MU, IN_WRITE = "inside the mu epochs", "in a checkpoint's write"


def in_mu(said: list[float], folder: Path) -> bool:
    """The fifth minibatch of the second step: a checkpoint lies behind the fourth."""
    return said[0] == 2 and said[1] >= 5


def in_write(said: list[float], folder: Path) -> bool:
    """A checkpoint is half-made."""
    return said[0] >= 2 and any((folder / "checkpoints").glob(".step-*.part"))


def after_refresh(said: list[float], folder: Path) -> bool:
    """The first step of the second outer iteration, in its third minibatch."""
    return said[0] == 3 and said[1] >= 3


KILLS = [
    ("sft", in_mu), ("grpo", in_mu), ("grpo-process", 0.3), ("grpo-iterative", after_refresh),
    ("ppo", in_mu), ("ppo-shared", in_write), ("dpo", in_write), ("online-dpo", after_refresh),
    ("spin", after_refresh), ("rft", in_write), ("rft-online", 0.2),
]  # fmt: skip


@pytest.fixture(scope="module")
def kills() -> Any:
    """The module of the campaign that kills; children find it by its name."""
    folder = str(Path(__file__).resolve().parents[1] / "campaign")
    sys.path.insert(0, folder)
    import kills

    yield kills
    sys.path.remove(folder)


@pytest.mark.parametrize(("name", "aim"), KILLS, ids=[name for name, _ in KILLS])
def test_a_killed_run_ends_as_one_that_was_not(
    kills: Any, tmp_path: Path, name: str, aim: Any
) -> None:
    case = kills.Runs(name)
    case.finish(tmp_path / "straight")
    for attempt in range(20):
        folder = tmp_path / f"killed-{attempt}"
        hit = case.kill(folder, aim)
        if hit is not None and is_meant(hit, aim):
            break
    else:
        raise AssertionError("twenty kills met another moment than was aimed at")
    if aim is in_mu:
        assert last_good(folder / "checkpoints") == folder / "checkpoints" / "step-000001-0004"
    case.finish(folder)
    assert kills.fault(tmp_path / "straight", folder) is None


def is_meant(hit: Any, aim: Any) -> bool:
    """Whether the kill met what was aimed at; the run goes on while the signal is on its way."""
    if aim is in_write:
        return hit.place == IN_WRITE
    if aim is in_mu:
        return hit.place == IN_MU and hit.step == 2
    return aim is not after_refresh or (hit.step == 3 and hit.minibatches > 0)
