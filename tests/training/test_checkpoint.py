from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from stepmark.errors import RunError
from stepmark.tasks.arith_model import arith_tokenizer, tiny_llama
from stepmark.training.checkpoint import (
    Policy,
    TrainingState,
    fingerprint,
    last_good,
    load_state,
    load_weights,
    prune,
    random_state,
    save_checkpoint,
    set_aside,
    set_random_state,
    step_folder,
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    tokenizer = arith_tokenizer()
    return Policy(tiny_llama(tokenizer, seed=0, layers=1, width=16, heads=2), tokenizer)


def test_weights_and_state_come_back_bit_for_bit(policy, tmp_path) -> None:
    reference = {name: weight + 1 for name, weight in policy.model.state_dict().items()}
    state = TrainingState(3, {"x": torch.ones(2)}, random_state(), 0.5, 2, 2, {"a": 1.0}, "f")
    import dataclasses

    save_checkpoint(tmp_path / "c", policy, dataclasses.replace(state, reference=reference))
    found = load_state(tmp_path / "c")
    assert (found.step, found.best, found.best_step, found.first_policy) == (3, 0.5, 2, "f")
    assert found.reference is not None
    assert all(torch.equal(reference[name], found.reference[name]) for name in reference)
    other = tiny_llama(policy.tokenizer, seed=1, layers=1, width=16, heads=2)
    assert fingerprint(other) != fingerprint(policy.model)
    load_weights(other, tmp_path / "c")
    assert fingerprint(other) == fingerprint(policy.model)
    weights = policy.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in other.state_dict().items())


def test_random_generators_go_on_where_they_were() -> None:
    state = random_state()
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    set_random_state(state)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first


def test_one_changed_byte_is_found_and_none_whole_is_an_error(policy, tmp_path, caplog) -> None:
    for step in (1, 2):
        save_checkpoint(
            step_folder(tmp_path, step), policy, TrainingState(step, {}, random_state())
        )
    assert last_good(tmp_path) == step_folder(tmp_path, 2)
    for step in (2, 1):
        weights = step_folder(tmp_path, step) / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(bytes(data))
        if step == 2:
            assert last_good(tmp_path) == step_folder(tmp_path, 1)
            assert "step-000002 is refused" in caplog.text
    with pytest.raises(RunError, match=r"No checkpoint in .* is whole"):
        last_good(tmp_path)


def test_no_checkpoint_means_a_new_run(tmp_path) -> None:
    assert last_good(tmp_path) is None


def test_only_the_newest_numbered_checkpoints_stay(policy, tmp_path) -> None:
    for step in (1, 2, 10):
        step_folder(tmp_path, step).mkdir()
    (tmp_path / "best").mkdir()
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best",
        "step-000002",
        "step-000010",
    ]


def test_damaged_checkpoints_that_were_passed_over_do_not_count_among_those_that_stay(
    policy, tmp_path
) -> None:
    def save(step: int) -> None:
        state = TrainingState(step, {}, random_state())
        save_checkpoint(step_folder(tmp_path, step), policy, state)

    for step in (1, 2, 3):
        save(step)
    for step in (2, 3):
        (step_folder(tmp_path, step) / "model.safetensors").write_bytes(b"torn")
    good = last_good(tmp_path)
    assert good is not None
    assert good == step_folder(tmp_path, 1)
    for _ in range(2):
        set_aside(tmp_path, good)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged-step-000002",
        "damaged-step-000003",
        "step-000001",
    ]
    save(2)
    prune(tmp_path, 1)
    assert last_good(tmp_path) == step_folder(tmp_path, 2)


def test_a_checkpoint_replaces_the_one_of_its_name(policy, tmp_path) -> None:
    for _ in range(2):
        save_checkpoint(tmp_path / "best", policy)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert not (tmp_path / "best" / "state").exists()
