from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from stepmark.errors import DataError, RunError
from stepmark.rl_backends import Dpo, DpoConfig, Grpo, GrpoConfig, Ppo, PpoConfig, Sft, SftConfig
from stepmark.rl_backends.replay import load_replay, replay, updater_of

COMMON = {"steps": 1, "learning_rate": 1e-2}
TIGHT = {**COMMON, "loss_limit": 1e-12}


def load_model(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


def again(file):
    batch = load_replay(file)
    return batch, replay(updater_of(batch, load_model(batch.folder)), batch)


@pytest.mark.parametrize(
    ("kind", "config", "more"),
    [
        (Sft, SftConfig, {}),
        (Grpo, GrpoConfig, {"aggregation": "token-mean"}),
        (Ppo, PpoConfig, {"critic": "own"}),
        (Ppo, PpoConfig, {"critic": "shared"}),
    ],
    ids=["sft", "grpo", "ppo-own", "ppo-shared"],
)
def test_a_replay_gives_loss_and_gradient_norm_of_the_run_bit_for_bit(
    bandit, tmp_path, kind, config, more
) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(kind(config(**COMMON, mu=1, minibatches=1, **more)))
    wanted = straight.folder.metrics()[0]
    stopped = bandit(tmp_path / "stopped")
    with pytest.raises(RunError, match="loss_limit") as caught:
        stopped.train(kind(config(**TIGHT, mu=1, minibatches=1, **more)))
    file = tmp_path / "stopped" / "replay" / "step-000001" / "batch.pt"
    assert str(caught.value).endswith(f"stepmark train --replay-batch {file}")
    batch, found = again(file)
    assert batch.what == "loss"
    for name, value in found.numbers.items():
        if name in wanted and not name.startswith("value"):
            assert value == wanted[name], name
    assert {"loss", "grad_norm"} <= found.numbers.keys()
    assert ("critic/grad_norm" in found.numbers) == (kind is Ppo)
    assert len(found.ones) == len(batch.samples)
    assert found.broken == 0
    assert sum(one.loss for one in found.ones) == pytest.approx(batch.value, rel=1e-4, abs=1e-7)


def spoilt(bandit, tmp_path, place: int, value: float):
    """A run whose third completion gets an advantage that nothing can be learnt from."""

    class Spoilt(Grpo):
        def prepare(self, groups, models):
            prepared = super().prepare(groups, models)
            one = prepared.samples[place]
            bad = dataclasses.replace(one, advantages=torch.full_like(one.advantages, value))
            rows = [*prepared.samples[:place], bad, *prepared.samples[place + 1 :]]
            return dataclasses.replace(prepared, samples=rows)

    run = bandit(tmp_path / "run")
    before = {name: weight.clone() for name, weight in run.weights.items()}
    with pytest.raises(RunError):
        run.train(Spoilt(GrpoConfig(**COMMON)))
    assert all(torch.equal(before[name], weight) for name, weight in run.weights.items())
    return again(tmp_path / "run" / "replay" / "step-000001")


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e12])
def test_the_worst_sample_is_the_one_that_broke_the_loss(bandit, tmp_path, value) -> None:
    batch, found = spoilt(bandit, tmp_path, 2, value)
    assert not batch.samples[found.worst].advantages.isfinite().all() or (
        batch.samples[found.worst].advantages.max() == value
    )
    assert found.broken == (not math.isfinite(value))
    assert math.isfinite(found.numbers["loss"]) == math.isfinite(value)


def test_a_pair_is_replayed_as_one(bandit, tmp_path) -> None:
    from stepmark.types import Problem, Prompt

    run = bandit(tmp_path / "run")
    meta = {"chosen": "b c", "rejected": "a a"}
    problem = Problem("p/1", "a", gold=None, solution=None, meta=meta)

    def prompts(step):
        return [Prompt(dataclasses.replace(problem, id=f"p/{n}"), (2 + n,), "a") for n in range(2)]

    run.rollout = run.rollout.model_copy(update={"max_tokens": 8})
    with pytest.raises(RunError, match="loss_limit"):
        run.train(Dpo(DpoConfig(**TIGHT)), prompts=prompts)
    batch, found = again(tmp_path / "run" / "replay" / "step-000001")
    assert len(batch.samples) == 4
    assert [len(one.samples) for one in found.ones] == [2, 2]
    assert found.numbers["loss"] == pytest.approx(math.log(2), abs=1e-4)


def test_what_is_no_kept_minibatch_is_refused_by_name(tmp_path) -> None:
    place = tmp_path / "batch.pt"
    with pytest.raises(DataError, match=r"cannot be replayed: FileNotFoundError"):
        load_replay(place)
    place.write_bytes(b"PK torn")
    with pytest.raises(DataError, match="cannot be replayed"):
        load_replay(place)
    torch.save({"step": 1}, place)
    with pytest.raises(DataError, match="cannot be replayed: KeyError"):
        load_replay(place)
