"""Reward models that learn from roll-outs: whose labels, within which budget, and after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

from stepmark.config.tables import RefreshTable
from stepmark.rl_backends import Grpo, GrpoConfig, Refreshed, Reward, Saved
from stepmark.rl_backends.choosing import to_annotate
from stepmark.store import Key, RunFolder

HashedSteps = run_path(str(Path(__file__).with_name("hashed_steps.py")))["HashedSteps"]

COMMON = {"steps": 4, "outer": 2, "learning_rate": 1e-2, "save_every": 1, "keep_checkpoints": 99}


def begun(
    bandit: Any, path: Path, *, resume: bool = False, model: Any = None, **table: Any
) -> tuple[Any, Reward]:
    run = bandit(path, resume=resume)
    run.rollout = run.rollout.model_copy(update={"max_tokens": 6})
    refresh = RefreshTable(**{"annotator": "mc", "rollouts": 2, **table})
    scorer = model or HashedSteps("word")
    return run, Reward(((run.verifier, 1.0),), ((scorer, 1.0),), refresh=refresh)


def trained(run: Any, reward: Reward, **given: Any) -> dict[int, dict[str, float]]:
    run.train(Grpo(GrpoConfig(**COMMON)), reward=reward, **given)
    return {row["step"]: row for row in run.folder.metrics()}


def test_every_step_is_labelled_by_what_follows_it_and_the_last_by_the_verifier(
    bandit, tmp_path
) -> None:
    model = HashedSteps("word")
    run, reward = begun(bandit, tmp_path / "run", model=model)
    trained(run, reward)
    (first, none, *_), (second, history, *_) = model.seen
    assert first
    assert second
    assert not none
    assert len(history) <= round(len(second) / 9) + 1
    scores = {at: v.score for at, v in run.folder.samples.verdicts("arm@1").items()}
    for row in first:
        key = Key(row.meta["step"], row.problem.id, row.meta["k"])
        assert row.labels[-1] == scores[key]
        assert row.origin == "rollouts"
        # The arm is right by its first word, which every roll-out keeps.
        assert set(row.labels) == {scores[key]}


def test_no_more_tokens_are_generated_than_the_budget_or_than_were_sampled(
    bandit, tmp_path
) -> None:
    for budget in (None, 40):
        run, reward = begun(bandit, tmp_path / str(budget), token_budget=budget)
        metrics = trained(run, reward)
        spent = {
            step: row["reward_model/hashed/annotation/tokens"]
            for step, row in metrics.items()
            if "reward_model/hashed/annotation/tokens" in row
        }
        assert set(spent) == {2, 4}
        samples = RunFolder.open(tmp_path / str(budget)).samples
        sampled = {
            end: sum(len(s.ids or ()) for s in samples.rows() if end - 2 < s.step <= end)
            for end in (2, 4)
        }
        for step, tokens in spent.items():
            assert 0 < tokens <= (sampled[step] if budget is None else budget)
        kept = tmp_path / str(budget) / "reward_models/rollouts/samples-00000.jsonl"
        drawn = [json.loads(line) for line in kept.read_text().splitlines()]
        assert sum(len(row["ids"]) for row in drawn) == sum(spent.values())


def test_a_budget_leaves_out_the_completions_that_come_last(bandit, tmp_path) -> None:
    run, reward = begun(bandit, tmp_path / "run", token_budget=40)
    metrics = trained(run, reward)
    assert metrics[2]["reward_model/hashed/annotation/beyond_budget"] > 0
    assert metrics[2]["reward_model/hashed/fresh_rows"] > 0


def test_completions_of_mixed_groups_come_first_and_problems_take_turns() -> None:
    keys = [Key(step, name, k) for step in (1, 2) for name in "abc" for k in range(4)]
    scores = {
        key: float(key.id == "a" or (key.id == "b" and key.step == 2 and key.k == 1))
        for key in keys
    }
    order = to_annotate(keys, scores, 3, seed=1)
    assert [key.id for key in order].count("b") == 3
    assert order[0] == Key(2, "b", 1)
    assert {key.id for key in order[:3]} == {"b"}
    assert {key.step for key in order[:3]} == {2}
    assert len(order) == 9
    assert {key.id for key in order[3:5]} == {"a", "c"}
    assert order == to_annotate(list(reversed(keys)), scores, 3, seed=1)
    assert len(to_annotate(keys, scores, None, seed=1)) == len(keys)


class KilledEngine:
    """An engine that dies after so many roll-outs of an annotation."""

    def __init__(self, engine: Any, after: int) -> None:
        self.engine, self.left = engine, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(self, prompts: Any, n: int, sampling: Any, seed: int) -> Any:
        for group in self.engine.generate(prompts, n, sampling, seed):
            if "#" in group.prompt.problem.id:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            yield group


@pytest.fixture(scope="module")
def straight_run() -> list[Any]:
    """The run that was not stopped and its reward model: made once, only looked at."""
    return []


@pytest.mark.parametrize(
    "at", ["saved 2", "drawn 5", "drawn 15", "learnt 2", "saved 3", "learnt 4"]
)
def test_a_run_that_is_killed_before_inside_or_behind_a_refresh_ends_with_the_same_bits(
    bandit, tmp_path, straight_run, at
) -> None:
    if not straight_run:
        model = HashedSteps("word")
        run, reward = begun(bandit, tmp_path / "straight", model=model)
        trained(run, reward)
        straight_run += [run, model]
    straight, model = straight_run
    word, _, number = at.partition(" ")

    def kill(event: Any) -> None:
        names = {Saved: "saved", Refreshed: "learnt"}
        if f"{names.get(type(event))} {event.step}" == at:
            raise KeyboardInterrupt

    broken, reward = begun(bandit, tmp_path / "broken")
    if word == "drawn":
        broken.engine = KilledEngine(broken.engine, int(number))
    with pytest.raises(KeyboardInterrupt):
        trained(broken, reward, on_event=kill)
    other = HashedSteps("word")
    again, reward = begun(bandit, tmp_path / "broken", resume=True, model=other)
    trained(again, reward)
    assert all(torch.equal(one, again.weights[name]) for name, one in straight.weights.items())
    assert torch.equal(model.weights, other.weights)
    assert straight.folder.metrics() == again.folder.metrics()
    one, two = straight.folder.samples, again.folder.samples
    assert list(one.rows()) == list(two.rows())
    assert one.score_keys() == two.score_keys()
