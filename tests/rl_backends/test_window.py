"""A run that is stopped inside the mu epochs of a step ends as one that never was, bit for bit."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

from stepmark.errors import RunError, Stopped
from stepmark.rl_backends import Saved, StepDone
from stepmark.rl_backends.window import Window, split
from stepmark.training.checkpoint import last_good, load_state, numbered, step_folder
from stepmark.training.sample import TrainingSample

EVERY = run_path(str(Path(__file__).with_name("every_backend.py")))
CASES, Started, difference, equal = (
    EVERY[name] for name in ("CASES", "Started", "difference", "equal")
)


class Killed(BaseException):
    """Stands for a kill: nothing in the loop may catch it."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a case's run that nothing stopped; each is made once."""
    bandit = run_path(str(Path(__file__).with_name("conftest.py")))["Bandit"]
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("straight") / name
            Started(bandit, name, made[name]).go()
        return made[name]

    return of


def samples_of(groups: int, each: int = 2) -> list[TrainingSample]:
    return [
        TrainingSample((1,), (2, 3), group, old_logps=torch.tensor([float(group), float(place)]))
        for group in range(groups)
        for place in range(each)
    ]


def test_a_window_read_back_goes_on_with_the_very_next_minibatch() -> None:
    whole = Window(3, samples_of(7), {"reward": 0.5}, trains_policy=False)
    every = list(whole.left(3, 4, seed=5))
    assert [one.epoch for one in every] == [0] * 4 + [1] * 4 + [2] * 4
    for done in range(len(every) + 1):
        whole.done = done
        whole.totals.add({"loss": 0.1})
        again = Window.from_row(whole.to_row())
        left = list(again.left(3, 4, seed=5))
        assert [one.epoch for one in left] == [one.epoch for one in every[done:]]
        for mine, theirs in zip(left, every[done:], strict=True):
            rows = [[sample.to_row() for sample in one.samples] for one in (mine, theirs)]
            assert equal(*rows)
        assert again.totals.sums == whole.totals.sums
        assert (again.measured, again.trains_policy) == ({"reward": 0.5}, False)


def test_the_order_of_minibatches_depends_on_the_seed_and_the_epoch_alone() -> None:
    random.random()
    torch.rand(1)
    one, two = (list(Window(1, samples_of(9)).left(2, 3, seed=0)) for _ in range(2))
    first, second = ([s.group for part in run for s in part.samples] for run in (one, two))
    assert first == second
    assert first[:18] != first[18:]
    assert sorted({s.group for part in one[:3] for s in part.samples}) == list(range(9))
    assert len(split(samples_of(2), 5, 0)) == 2


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ((2, 3, 0), "mu = 2"),
        ((3, 1, 0), "minibatches = 1"),
        ((3, 3, 1), "seed = 1"),
        ((2, 3, 1), "mu = 2, seed = 1"),
    ],
)
def test_a_window_is_gone_on_with_in_the_order_that_it_was_begun_with_alone(now, told) -> None:
    window = Window(5, samples_of(6))
    next(window.left(3, 3, 0))
    window.done = 4
    again = Window.from_row(window.to_row())
    with pytest.raises(RunError, match=f"Step 5 was left after 4 minibatches.* now it is {told},"):
        next(again.left(*now))
    assert len(list(again.left(3, 3, 0))) == 5
    old = {name: value for name, value in window.to_row().items() if name != "order"}
    assert len(list(Window.from_row(old).left(3, 3, 0))) == 5


def test_a_run_is_not_resumed_inside_of_a_step_with_other_minibatches(bandit, tmp_path) -> None:
    broken = Started(bandit, "grpo", tmp_path / "r")
    backend = EVERY["backend_of"]("grpo")
    object.__setattr__(backend, "losses", Pressing(backend, signal.SIGTERM, at=2))
    with pytest.raises(Stopped):
        broken.train(backend)
    again = Started(bandit, "grpo", tmp_path / "r", resume=True)
    with pytest.raises(RunError, match=r"minibatches = 2(.|\n)*Resume with minibatches = 3"):
        again.go(minibatches=2)


def test_a_step_that_is_gone_on_with_has_no_speed_of_its_own(bandit, tmp_path) -> None:
    broken = Started(bandit, "grpo", tmp_path / "r")
    backend = EVERY["backend_of"]("grpo")
    object.__setattr__(backend, "losses", Pressing(backend, signal.SIGTERM, at=2))
    with pytest.raises(Stopped):
        broken.train(backend)
    again = Started(bandit, "grpo", tmp_path / "r", resume=True)
    again.go()
    rows = again.run.folder.timings()
    assert ["tokens_per_s" in row for row in rows] == [False, True, True, True]
    assert all(row["update_s"] > 0 for row in rows)


@pytest.mark.parametrize("keep", [1, 2])
def test_torn_checkpoints_do_not_push_out_the_whole_ones(bandit, tmp_path, keep: int) -> None:
    def kill(event: Any) -> None:
        if isinstance(event, Saved) and event.path.name == "step-000003":
            raise Killed

    with pytest.raises(Killed):
        Started(bandit, "grpo", tmp_path / "r").go(kill, save_every=1, keep_checkpoints=3)
    checkpoints = tmp_path / "r" / "checkpoints"
    for step in (2, 3):
        (step_folder(checkpoints, step) / "model.safetensors").write_bytes(b"torn")
    found: list[Path | None] = []

    def look(event: Any) -> None:
        if isinstance(event, Saved):
            found.append(last_good(event.path.parent))
            raise Killed

    again = Started(bandit, "grpo", tmp_path / "r", resume=True)
    with pytest.raises(Killed):
        again.go(look, save_every_minibatches=2, keep_checkpoints=keep)
    assert found == [step_folder(checkpoints, 1, 2)]
    left = sorted(place.name for place in checkpoints.iterdir())
    assert "damaged-step-000003" in left
    assert len([name for name in left if name.startswith("step-")]) == keep


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("at", [(1, 3), (2, 4)], ids=["1+3", "2+4"])
def test_a_run_killed_between_two_minibatches_goes_on_bit_for_bit(
    bandit, tmp_path, straight, name: str, at: tuple[int, int]
) -> None:
    """Killed after so many steps and minibatches of the next; 2+4 is after a refresh."""
    expected = straight(name)

    def kill(event: Any) -> None:
        if isinstance(event, Saved) and event.path == step_folder(event.path.parent, *at):
            raise Killed

    broken = Started(bandit, name, tmp_path / "r")
    with pytest.raises(Killed):
        broken.go(kill, save_every_minibatches=at[1])
    checkpoints = broken.run.folder.checkpoints
    assert last_good(checkpoints) == step_folder(checkpoints, *at)
    again = Started(bandit, name, tmp_path / "r", resume=True)
    again.go()
    assert difference(expected, tmp_path / "r") is None
    later = [key for key in again.run.folder.samples.keys() if key.step > at[0] + 1]  # noqa: SIM118
    assert len(again.run.verifier.marked) in (0, len(later)), "the open step is not marked again"


class Pressing:
    """A backend's losses, and a signal to this process in the middle of the n-th."""

    def __init__(self, backend: Any, number: int, at: int) -> None:
        self.losses, self.number, self.left = backend.losses, number, at

    def __call__(self, *args: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        return self.losses(*args)


SIGNALS = [*((name, signal.SIGTERM) for name in CASES), ("grpo", signal.SIGINT)]


@pytest.mark.parametrize(("name", "number"), SIGNALS)
def test_a_signal_stops_within_one_minibatch_and_the_run_goes_on_bit_for_bit(
    bandit, tmp_path, straight, name: str, number: int
) -> None:
    expected = straight(name)
    broken = Started(bandit, name, tmp_path / "r")
    backend = EVERY["backend_of"](name)
    object.__setattr__(backend, "losses", Pressing(backend, number, at=2))
    with pytest.raises(Stopped, match=r"after step 0 of 4 and [12] minibatches of the next"):
        broken.train(backend)
    (place,) = numbered(broken.run.folder.checkpoints)
    assert place.name in ("step-000000-0001", "step-000000-0002")
    again = Started(bandit, name, tmp_path / "r", resume=True)
    again.go()
    assert difference(expected, tmp_path / "r") is None


def test_a_run_stopped_in_every_single_minibatch_ends_as_one_that_never_was(
    bandit, tmp_path, straight
) -> None:
    """Twenty-four optimizer steps in twenty-four processes' worth of resuming."""
    expected, stops = straight("grpo"), 0
    while True:
        run = Started(bandit, "grpo", tmp_path / "r", resume=stops > 0)
        backend = EVERY["backend_of"]("grpo")
        object.__setattr__(backend, "losses", Pressing(backend, signal.SIGTERM, at=1))
        try:
            run.train(backend)
        except Stopped:
            stops += 1
        else:
            break
    assert stops >= 20
    assert difference(expected, tmp_path / "r") is None


def test_an_evaluation_that_is_due_is_left_to_the_resumed_run(bandit, tmp_path, straight) -> None:
    def press(event: Any) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    expected = straight("grpo")
    broken = Started(bandit, "grpo", tmp_path / "r")
    with pytest.raises(Stopped, match=r"after step 2 of 4; nothing"):
        broken.go(press)
    assert "eval/accuracy" not in broken.run.folder.metrics()[-1]
    assert load_state(last_good(broken.run.folder.checkpoints)).evaluated_at == 0
    Started(bandit, "grpo", tmp_path / "r", resume=True).go()
    assert difference(expected, tmp_path / "r") is None


def test_checkpoints_inside_of_a_step_count_among_those_that_stay(bandit, tmp_path) -> None:
    run = Started(bandit, "grpo", tmp_path / "r")
    saved: list[str] = []

    def look(event: Any) -> None:
        if isinstance(event, Saved):
            saved.append(event.path.name)
            left = [place.name for place in numbered(event.path.parent)]
            assert left == [name for name in saved if name != "final"][-2:]

    run.go(look, save_every_minibatches=2, save_every=2, keep_checkpoints=2)
    inside = [[f"step-{step:06d}-{done:04d}" for done in (2, 4)] for step in range(4)]
    assert saved == [*inside[0], *inside[1], "step-000002", *inside[2], *inside[3], "final"]


def test_a_torn_checkpoint_inside_of_a_step_is_passed_over(
    bandit, tmp_path, straight, caplog
) -> None:
    def kill(event: Any) -> None:
        if isinstance(event, Saved) and event.path.name == "step-000001-0004":
            raise Killed

    broken = Started(bandit, "ppo", tmp_path / "r")
    with pytest.raises(Killed):
        broken.go(kill, save_every_minibatches=2)
    window = tmp_path / "r" / "checkpoints" / "step-000001-0004" / "state" / "window.pt"
    window.write_bytes(window.read_bytes()[:-9])
    Started(bandit, "ppo", tmp_path / "r", resume=True).go()
    assert "step-000001-0004 is refused: state/window.pt is not what was written" in caplog.text
    assert difference(straight("ppo"), tmp_path / "r") is None
