"""DPO in all its forms and RFT on the loop: what they learn, and that resuming changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from stepmark.errors import ConfigError, RunError
from stepmark.rl_backends import (
    Dpo,
    DpoConfig,
    Grpo,
    OnlineDpo,
    OnlineDpoConfig,
    Reward,
    Rft,
    RftConfig,
    Saved,
    Spin,
    SpinConfig,
    StepDone,
)
from stepmark.rl_backends.sources import drawing_of
from stepmark.types import Prompt, Verdict

CHOSEN = {"chosen": "b", "rejected": "c"}


def with_preferences(run: Any) -> Callable[[int], list[Prompt]]:
    """The bandit's prompts with a pair in each problem, and a demonstration."""
    prompts = run.train.__globals__["bandit_prompts"](run.policy)

    def chosen(step: int) -> list[Prompt]:
        return [
            replace(prompt, problem=replace(prompt.problem, meta=CHOSEN, solution="b"))
            for prompt in prompts(step)
        ]

    return chosen


KINDS = {
    "dpo": (Dpo, DpoConfig, {}),
    "ipo": (Dpo, DpoConfig, {"loss": "ipo-mean"}),
    "online-dpo": (OnlineDpo, OnlineDpoConfig, {}),
    "spin": (Spin, SpinConfig, {}),
    "spin-online": (Spin, SpinConfig, {"online": True}),
    "rft": (Rft, RftConfig, {}),
    "rft-online": (Rft, RftConfig, {"online": True}),
}


def backend_of(kind: str, **given: Any) -> Any:
    made, config, own = KINDS[kind]
    common = {"steps": 4, "learning_rate": 1e-2, "save_every": None, "keep_checkpoints": 9}
    return made(config(**common | own | given))


def same(one: Any, two: Any) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


STOPS = [("spin", 1), ("rft", 1)]
STOPS += [(kind, 3) for kind in ("dpo", "online-dpo", "spin", "rft", "rft-online")]


@pytest.mark.parametrize(("kind", "stop_after"), STOPS)
def test_a_resumed_run_equals_a_straight_one_bit_for_bit(
    bandit, tmp_path, kind: str, stop_after: int
) -> None:
    """Four steps in two outer iterations: stopped inside the first one, and inside the second."""
    backend = lambda: backend_of(kind, outer=2, mu=2, minibatches=2, eval_every=2, save_every=1)  # noqa: E731
    evaluate = lambda policy, step: {"accuracy": -float(step)}  # noqa: E731
    straight = bandit(tmp_path / "straight")
    straight.train(backend(), evaluate=evaluate, prompts=with_preferences(straight))

    class Killed(Exception):
        pass

    def kill(event: Any) -> None:
        if isinstance(event, Saved) and event.step == stop_after:
            raise Killed

    broken = bandit(tmp_path / "broken")
    with pytest.raises(Killed):
        broken.train(backend(), evaluate=evaluate, on_event=kill, prompts=with_preferences(broken))
    again = bandit(tmp_path / "broken", resume=True)
    again.train(backend(), evaluate=evaluate, prompts=with_preferences(again))
    assert same(straight.weights, again.weights)
    assert straight.folder.metrics() == again.folder.metrics()
    assert list(straight.folder.samples.rows()) == list(again.folder.samples.rows())


def log_prob(run: Any, arm: str, prompt: str = "a") -> float:
    """Of an arm as the first token, under the policy."""
    ids = torch.tensor([run.policy.tokenizer(prompt)["input_ids"]])
    arm_id = run.policy.tokenizer.convert_tokens_to_ids(arm)
    with torch.no_grad():
        return float(run.policy.model(ids).logits[0, -1].log_softmax(-1)[arm_id])


@pytest.mark.parametrize("kind", ["dpo", "ipo"])
def test_preferences_are_learnt_from_data(bandit, tmp_path, kind: str) -> None:
    run = bandit(tmp_path / "run")
    before = log_prob(run, "b") - log_prob(run, "c")
    run.train(backend_of(kind, steps=30), prompts=with_preferences(run))
    assert log_prob(run, "b") - log_prob(run, "c") > before + 2
    rows = run.folder.metrics()
    assert (rows[0]["rewards/accuracies"], rows[-1]["rewards/accuracies"]) == (0, 1)
    assert rows[-1]["rewards/margins"] > 0.2
    assert rows[0]["num_tokens"] == 3 * 4  # three pairs of an arm and the end token
    assert not list(run.folder.samples.rows())


@pytest.mark.parametrize("kind", ["online-dpo", "spin", "spin-online", "rft", "rft-online"])
def test_the_bandit_is_learnt_from_completions_of_the_policy(bandit, tmp_path, kind: str) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 8})
    given = {"outer": 6} if "online" not in kind else {}
    before = math.exp(log_prob(run, "b"))
    run.train(
        backend_of(kind, steps=24, learning_rate=2e-2, **given), prompts=with_preferences(run)
    )
    assert before < 0.3
    assert math.exp(log_prob(run, "b")) > 0.8


@pytest.mark.parametrize(("kind", "first"), [("dpo", math.log(2)), ("online-dpo", math.log(2))])
def test_the_first_loss_of_every_outer_iteration_is_that_of_equal_models(
    bandit, tmp_path, kind: str, first: float
) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 16})
    run.train(backend_of(kind, steps=6, outer=3), prompts=with_preferences(run))
    losses = [row["loss"] for row in run.folder.metrics()]
    assert [losses[step] for step in (0, 2, 4)] == pytest.approx([first] * 3, abs=1e-6)
    assert all(abs(losses[step] - first) > 1e-4 for step in (1, 3, 5))


def test_a_model_that_is_noisy_in_eval_mode_is_refused_before_it_learns(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    before = {name: value.clone() for name, value in run.weights.items()}
    noise = torch.Generator().manual_seed(0)

    def disturb(module, inputs, output):
        return output + torch.randn(output.shape, generator=noise)

    run.policy.model.get_input_embeddings().register_forward_hook(disturb)
    with pytest.raises(RunError, match=r"first loss is .* and must be 0\.693147") as said:
        run.train(backend_of("dpo"), prompts=with_preferences(run))
    assert "dropout" in str(said.value)
    assert same(before, run.weights)


def test_a_given_reference_may_be_another_model(bandit, tmp_path) -> None:
    run, other = bandit(tmp_path / "run"), bandit(tmp_path / "other")
    with torch.no_grad():
        for weight in other.policy.model.parameters():
            weight.add_(0.05)
    run.train(backend_of("dpo"), prompts=with_preferences(run), reference=other.policy.model)
    assert run.folder.metrics()[0]["loss"] != pytest.approx(math.log(2), abs=1e-6)


class AllWrong:
    key = "wrong@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Any) -> list[Verdict]:
        return [Verdict.marked(0.0, "judged") for _ in items]


@pytest.mark.parametrize("kind", ["online-dpo", "rft", "rft-online"])
def test_a_step_that_gives_nothing_to_learn_moves_nothing_and_says_so(
    bandit, tmp_path, kind: str
) -> None:
    run = bandit(tmp_path / "run", verifier=AllWrong())
    before = {name: value.clone() for name, value in run.weights.items()}
    run.train(backend_of(kind, weight_decay=0.1), prompts=with_preferences(run))
    assert same(before, run.weights)
    skipped = "rft/skipped_step" if "rft" in kind else "pairs/skipped_step"
    for row in run.folder.metrics():
        assert (row[skipped], row["frac_reward_zero_std"]) == (1, 1)
        assert "loss" not in row


@pytest.mark.parametrize(("kind", "policies"), [("rft", 2), ("rft-online", 4), ("spin", 2)])
def test_offline_sampling_is_from_the_policy_that_the_outer_iteration_began_with(
    bandit, tmp_path, kind: str, policies: int
) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 16})
    run.train(backend_of(kind, outer=2), prompts=with_preferences(run))
    names = {row.step: row.policy for row in run.folder.samples.rows()}
    assert len(set(names.values())) == policies


def test_held_out_evaluation_sees_the_policy_and_not_what_samples(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 16})
    first = {name: value.clone() for name, value in run.weights.items()}
    seen: list[bool] = []

    def evaluate(policy: Any, step: int) -> dict[str, float]:
        ours = run.engine.model.state_dict()
        assert same(ours, policy.model.state_dict())
        seen.append(same(first, ours))
        return {"accuracy": 0.0}

    run.train(backend_of("rft", eval_every=1), evaluate=evaluate, prompts=with_preferences(run))
    assert seen == [True, False, False, False, False]


def test_metrics_of_self_play_are_of_the_sampled_completions_alone(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run", verifier=AllWrong())
    run.train(backend_of("spin", steps=1), prompts=with_preferences(run))
    (row,) = run.folder.metrics()
    stored = [sample for sample in run.folder.samples.rows() if sample.k < 4]
    assert row["num_tokens"] == sum(len(sample.ids) for sample in stored)
    assert len(list(run.folder.samples.rows())) == 3 * 5


def test_self_play_needs_an_engine_and_no_verifier(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.train(backend_of("spin", steps=1), prompts=with_preferences(run), reward=Reward())
    again = bandit(tmp_path / "again")
    with pytest.raises(ConfigError, match=r"sampled completions and got no engine.*rollout.engine"):
        again.train(backend_of("spin"), prompts=with_preferences(again), engine=None)


def test_a_killed_offline_step_is_taken_from_the_store(bandit, tmp_path) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(backend_of("rft"), prompts=with_preferences(straight))

    class Killed(Exception):
        pass

    def kill(event: Any) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            raise Killed

    broken = bandit(tmp_path / "broken")
    with pytest.raises(Killed):
        broken.train(backend_of("rft"), on_event=kill, prompts=with_preferences(broken))
    again = bandit(tmp_path / "broken", resume=True)
    again.train(backend_of("rft"), prompts=with_preferences(again))
    assert len(again.verifier.marked) == 3 * 4, "step 3 lies in the store; only step 4 is marked"
    assert same(straight.weights, again.weights)


@pytest.mark.parametrize("kind", ["online-dpo", "spin", "rft"])
def test_likelihoods_are_at_temperature_1_however_completions_were_sampled(
    bandit, tmp_path, kind: str
) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"temperature": 0.5, "group_size": 16})
    run.train(backend_of(kind, steps=1), prompts=with_preferences(run))
    reward = Reward(((run.verifier, 1.0),))
    drawing = drawing_of(backend_of(kind), run.policy, run.rollout, (), run.engine, reward)
    assert (drawing.temperature, drawing.sampling.temperature) == (1.0, 0.5)
    own = drawing_of(Grpo(), run.policy, run.rollout, (), run.engine, reward)
    assert (own.temperature, own.sampling.temperature) == (0.5, 0.5)
