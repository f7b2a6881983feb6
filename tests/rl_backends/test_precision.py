from __future__ import annotations

import pytest
import torch

from stepmark.rl_backends import Grpo, GrpoConfig, Ppo, PpoConfig, Saved
from stepmark.rl_backends.replay import load_replay, replay, updater_of
from stepmark.training.precision import precision_of

CONFIG = {"steps": 3, "mu": 2, "minibatches": 2, "learning_rate": 1e-2, "save_every": 1}


def trained(run, **given):
    precision = precision_of(run.policy.model, "bfloat16", checkpointing=True)
    run.train(Grpo(GrpoConfig(**CONFIG)), precision=precision, **given)
    return run


def test_a_run_under_autocast_resumes_bit_for_bit_with_float32_weights(bandit, tmp_path) -> None:
    straight = trained(bandit(tmp_path / "straight"))
    assert {weight.dtype for weight in straight.weights.values()} == {torch.float32}

    class Killed(Exception):
        pass

    def kill(event) -> None:
        if isinstance(event, Saved) and event.step == 2:
            raise Killed

    with pytest.raises(Killed):
        trained(bandit(tmp_path / "broken"), on_event=kill)
    again = trained(bandit(tmp_path / "broken", resume=True))
    assert all(torch.equal(straight.weights[name], again.weights[name]) for name in again.weights)
    assert straight.folder.metrics() == again.folder.metrics()
    exact = bandit(tmp_path / "exact")
    exact.train(Grpo(GrpoConfig(**CONFIG)))
    assert exact.folder.metrics() != straight.folder.metrics()


@pytest.mark.parametrize("critic", ["own", "shared"])
def test_a_critic_learns_under_autocast_too(bandit, tmp_path, critic) -> None:
    run = bandit(tmp_path / "run")
    precision = precision_of(run.policy.model, "bfloat16", checkpointing=True)
    run.train(Ppo(PpoConfig(**CONFIG, critic=critic)), precision=precision)
    assert all(row["critic/grad_norm"] > 0 for row in run.folder.metrics())


def test_of_bfloat16_weights_the_share_that_changed_is_logged(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.policy.model.to(torch.bfloat16)
    run.train(Grpo(GrpoConfig(**{**CONFIG, "learning_rate": 1e-2})))
    assert any(0 < row["weights_changed"] <= 1 for row in run.folder.metrics())
    exact = bandit(tmp_path / "exact")
    exact.train(Grpo(GrpoConfig(**CONFIG)))
    assert not any("weights_changed" in row for row in exact.folder.metrics())


def test_a_minibatch_is_replayed_in_the_precision_of_its_run(bandit, tmp_path) -> None:
    from stepmark.engines import load_policy
    from stepmark.errors import RunError
    from stepmark.rl_backends import Sft, SftConfig

    run = bandit(tmp_path / "run")
    precision = precision_of(run.policy.model, "bfloat16", checkpointing=True)
    with pytest.raises(RunError, match="loss_limit"):
        run.train(Sft(SftConfig(steps=1, loss_limit=1e-6)), precision=precision)
    batch = load_replay(tmp_path / "run" / "replay" / "step-000001")
    model, _ = load_policy(str(batch.folder), batch.dtype)
    assert replay(updater_of(batch, model), batch).numbers["loss"] == batch.value
