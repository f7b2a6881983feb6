"""Reward models that learn between outer iterations: what they get, keep, and how they resume."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

from stepmark.config.tables import RefreshTable
from stepmark.errors import RunError
from stepmark.prm import load_scorer
from stepmark.protocols import RewardModel
from stepmark.rl_backends import Grpo, GrpoConfig, Refreshed, Reward, Saved, StepDone
from stepmark.rl_backends.refresh import Refresher, history_size
from stepmark.store import Sample, SampleStore
from stepmark.tasks import check_steps, load_task
from stepmark.training.checkpoint import load_state, random_state
from stepmark.types import LabelledSteps, Problem, StepItem, Verdict

HashedSteps = run_path(str(Path(__file__).with_name("hashed_steps.py")))["HashedSteps"]


class Said:
    """A verifier of which only the key is used."""

    key = "said@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Sequence[Any]) -> list[Verdict]:
        return [Verdict.marked(0.0, "judged") for _ in items]


def stored(folder: Path, steps: int, each: int, *, tokens: int = 4) -> SampleStore:
    """``each`` completions a step: two lines, right where the number is even, one unmarked."""
    store = SampleStore(folder)
    for step in range(1, steps + 1):
        rows = [
            Sample(f"p{n}", 0, step, "?", "?", text, (1,) * tokens, None, "stop", "1")
            for n, text in enumerate(f"line {n}\nanswer {n}" for n in range(each))
        ]
        store.append(rows)
        verdicts = [
            Verdict.abstained("declined") if n == 0 else Verdict.marked(float(n % 2 == 0), "judged")
            for n in range(each)
        ]
        store.append_verdicts("said@1", zip((row.key for row in rows), verdicts, strict=True))
    return store


def refresher(store: SampleStore, model: Any, seed: int = 0, **table: Any) -> Refresher:
    reward = Reward(((Said(), 1.0),), ((model, 1.0),), refresh=RefreshTable(**table))
    return Refresher(reward, store, seed)


def test_history_is_its_share_of_the_mixture() -> None:
    for share in (0.0, 0.1, 0.25, 0.5):
        history = history_size(900, share, 10_000)
        assert history / (900 + history) == pytest.approx(share, abs=1e-3)


def test_a_model_gets_fresh_rows_and_a_tenth_of_earlier_ones(tmp_path) -> None:
    model = HashedSteps()
    found = refresher(stored(tmp_path, 4, 46), model).refresh(1, [3, 4])
    ((fresh, history, share, _),) = model.seen
    assert (len(fresh), len(history), share) == (90, 10, 0.1)
    assert found["reward_model/hashed/fresh_rows"] == 90
    assert found["reward_model/hashed/history_rows"] == 10
    assert found["reward_model/hashed/loss"] < found["reward_model/hashed/first_loss"]


def test_the_first_iteration_has_no_history(tmp_path) -> None:
    model = HashedSteps()
    refresher(stored(tmp_path, 3, 5), model).refresh(0, [1, 2])
    assert [(len(fresh), len(history)) for fresh, history, *_ in model.seen] == [(8, 0)]


def test_the_outcome_labels_the_last_step_and_an_abstention_labels_nothing(tmp_path) -> None:
    model = HashedSteps()
    refresher(stored(tmp_path, 1, 4), model).refresh(0, [1])
    rows = {row.problem.id: row for row in model.seen[0][0]}
    assert {id: row.labels for id, row in rows.items()} == {
        "p1": (None, 0.0),
        "p2": (None, 1.0),
        "p3": (None, 0.0),
    }
    assert rows["p1"].steps == ("line 1", "answer 1")


def test_a_named_scorer_labels_every_step(tmp_path) -> None:
    path = tmp_path / "labels.py"
    path.write_text("def short(steps):\n    return [float(len(s) < 8) for s in steps]\n")
    model = HashedSteps()
    store = stored(tmp_path / "samples", 1, 4)
    refresher(store, model, annotator=f"{path}:short").refresh(0, [1])
    assert [row.labels for row in model.seen[0][0]] == [(1.0, 0.0)] * 4


def test_budgets_of_rows_and_tokens_hold_for_the_mixture(tmp_path) -> None:
    store = stored(tmp_path, 4, 46, tokens=10)
    for table, most in (({"row_budget": 20}, 20), ({"token_budget": 305}, 30)):
        model = HashedSteps()
        refresher(store, model, **table).refresh(1, [3, 4])
        ((fresh, history, _, _),) = model.seen
        assert most - 3 <= len(fresh) + len(history) <= most
        assert len(history) == history_size(len(fresh), 0.1, 99)


def test_what_is_drawn_depends_on_the_seed_and_the_iteration_alone(tmp_path) -> None:
    store = stored(tmp_path, 4, 46)

    def drawn(seed: int, iteration: int = 1) -> Any:
        random.random()
        torch.rand(1)
        model = HashedSteps()
        refresher(store, model, seed, row_budget=20).refresh(iteration, [3, 4])
        return model.seen[0], model.weights

    (one, first), (two, second), (three, _) = drawn(0), drawn(0), drawn(1)
    assert one == two
    assert torch.equal(first, second)
    assert one[0] != three[0]
    assert one[0] != drawn(0, 2)[0][0]


def test_the_random_state_of_the_process_is_given_back(tmp_path) -> None:
    before = random_state()
    refresher(stored(tmp_path, 2, 5), HashedSteps()).refresh(0, [1, 2])
    after = random_state()
    assert before["python"] == after["python"]
    assert torch.equal(before["torch"], after["torch"])


def test_without_any_label_the_model_stays_as_it_is(tmp_path, caplog) -> None:
    model = HashedSteps()
    found = refresher(stored(tmp_path, 2, 1), model).refresh(0, [1, 2])
    assert found == {
        "reward_model/hashed/fresh_rows": 0.0,
        "reward_model/hashed/history_rows": 0.0,
    }
    assert not model.seen
    assert "none of 0 completions has a label" in caplog.text


class Raises(HashedSteps):
    def refresh(self, *_: Any, **__: Any) -> Mapping[str, float]:
        raise ArithmeticError("singular")


class Strange(HashedSteps):
    def state(self) -> Mapping[str, Any]:
        return {"model": {"weights": [self.weights, object()]}}


def test_a_model_that_raises_or_cannot_be_saved_is_named(tmp_path) -> None:
    store = stored(tmp_path, 1, 4)
    with pytest.raises(RunError, match=r"'hashed' raised while it learnt from 3 (.|\n)*singular"):
        refresher(store, Raises()).refresh(0, [1])
    with pytest.raises(RunError, match="holds a object; a checkpoint"):
        refresher(store, Strange()).refresh(0, [1])


def test_resuming_with_another_reward_model_is_refused(tmp_path) -> None:
    store = stored(tmp_path, 1, 4)
    one = refresher(store, HashedSteps())
    one.refresh(0, [1])
    other = HashedSteps()
    other.weights[0] = 1.0
    with pytest.raises(RunError, match="The run began with the reward models"):
        refresher(store, other).start(one.state())
    model = HashedSteps()
    same = refresher(store, model)
    same.start(one.state())
    assert (same.done, torch.equal(model.weights, one.models[0].weights)) == (1, True)


def corrupted(problem: Problem, rng: random.Random) -> tuple[str, ...]:
    """The worked lines, some of the products with a wrong result."""
    lines: list[str] = []
    for line in problem.meta["steps"]:
        left, _, right = line.rpartition(" ")
        is_wrong = "*" in line and rng.random() < 0.5
        lines.append(f"{left} {int(right) + rng.choice((-2, -1, 1, 2))}" if is_wrong else line)
    return tuple(lines)


def test_the_small_reward_model_learns_which_products_are_right() -> None:
    rng, task = random.Random(0), load_task("arith?size=1200&product_share=0.9", "train")
    rows = [(problem, corrupted(problem, rng)) for problem in task.problems]
    labelled = [LabelledSteps(p, s, tuple(map(float, check_steps(p, s)))) for p, s in rows]
    model = HashedSteps()
    assert isinstance(model, RewardModel)
    model.refresh(labelled[:1000], [], 0.1, 0)
    right: list[float] = []
    wrong: list[float] = []
    for row in labelled[1000:]:
        (found,) = model.score([StepItem(row.problem, row.steps)])
        for step, label, score in zip(row.steps, row.labels, found.scores, strict=True):
            if "*" in step:
                (right if label else wrong).append(score)
    above = sum(a > b for a in right for b in wrong) / (len(right) * len(wrong))
    assert above > 0.95, "share of pairs in order, on problems it has not seen"


# -- on the loop

COMMON = {"steps": 4, "outer": 2, "mu": 2, "learning_rate": 1e-2, "save_every": 1}


def iterative(**given: Any) -> Grpo:
    return Grpo(GrpoConfig(**{**COMMON, "keep_checkpoints": 99, **given}))


def started(bandit: Any, path: Path, model: Any, *, resume: bool = False) -> tuple[Any, Reward]:
    run = bandit(path, resume=resume)
    run.rollout = run.rollout.model_copy(update={"max_tokens": 8})
    return run, Reward(((run.verifier, 1.0),), ((model, 1.0),))


def same(one: Any, two: Any) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_the_models_learn_at_the_end_of_each_outer_iteration(bandit, tmp_path) -> None:
    events: list[Any] = []
    model = HashedSteps("word")
    run, reward = started(bandit, tmp_path / "run", model)
    run.train(iterative(), reward=reward, on_event=events.append)
    told = [
        (type(event).__name__, event.step)
        for event in events
        if isinstance(event, StepDone | Refreshed)
    ]
    done, learnt = "StepDone", "Refreshed"
    assert told == [(done, 1), (done, 2), (learnt, 2), (done, 3), (done, 4), (learnt, 4)]
    assert [(len(fresh), len(history)) for fresh, history, *_ in model.seen] == [(24, 0), (24, 3)]
    # Two states scored: before and after the first refresh; nothing was scored by the third.
    assert len(run.folder.samples.score_keys()) == 2
    metrics = {row["step"]: row for row in run.folder.metrics()}
    assert metrics[2]["reward_model/hashed/fresh_rows"] == 24
    assert metrics[4]["reward_model/hashed/history_rows"] == 3
    kept = load_state(run.folder.checkpoints / "final").reward_models
    assert kept is not None
    assert kept["done"] == 2
    assert torch.equal(kept["states"][0]["weights"], model.weights)


def test_one_outer_iteration_is_plain_and_none_keeps_the_models_as_they_are(
    bandit, tmp_path
) -> None:
    model = HashedSteps("word")
    run, reward = started(bandit, tmp_path / "one", model)
    run.train(iterative(outer=1), reward=reward)
    assert not model.seen
    run, _ = started(bandit, tmp_path / "none", model)
    fixed = Reward(((run.verifier, 1.0),), ((model, 1.0),), refresh=RefreshTable(annotator=None))
    run.train(iterative(), reward=fixed)
    assert not model.seen


@pytest.fixture(scope="module")
def straight_run() -> list[Any]:
    """The run that was not stopped and its reward model: made once, only looked at."""
    return []


@pytest.mark.parametrize("at", ["saved 1", "saved 2", "learnt 2", "done 3", "saved 3", "learnt 4"])
def test_a_run_with_reward_models_resumes_bit_for_bit(bandit, tmp_path, straight_run, at) -> None:
    if not straight_run:
        model = HashedSteps("word")
        run, reward = started(bandit, tmp_path / "straight", model)
        run.train(iterative(), reward=reward)
        straight_run += [run, model]
    straight, model = straight_run

    names = {Saved: "saved", Refreshed: "learnt", StepDone: "done"}

    def kill(event: Any) -> None:
        if f"{names.get(type(event))} {event.step}" == at:
            raise KeyboardInterrupt

    broken, reward = started(bandit, tmp_path / "broken", HashedSteps("word"))
    with pytest.raises(KeyboardInterrupt):
        broken.train(iterative(), reward=reward, on_event=kill)
    other = HashedSteps("word")
    again, reward = started(bandit, tmp_path / "broken", other, resume=True)
    again.train(iterative(), reward=reward)
    assert same(straight.weights, again.weights)
    assert torch.equal(model.weights, other.weights)
    assert straight.folder.metrics() == again.folder.metrics()
    one, two = straight.folder.samples, again.folder.samples
    assert list(one.rows()) == list(two.rows())
    assert one.score_keys() == two.score_keys()
    for key in one.score_keys():
        assert one.scores(key) == two.scores(key)


def test_a_reward_model_that_fails_costs_no_step(bandit, tmp_path) -> None:
    model = HashedSteps("word")
    straight, reward = started(bandit, tmp_path / "straight", model)
    straight.train(iterative(save_every=None), reward=reward)
    broken, reward = started(bandit, tmp_path / "broken", Raises("word"))
    with pytest.raises(RunError, match="singular"):
        broken.train(iterative(save_every=None), reward=reward)
    again, reward = started(bandit, tmp_path / "broken", HashedSteps("word"), resume=True)
    again.train(iterative(save_every=None), reward=reward)
    assert same(straight.weights, again.weights)


def test_arith_steps_is_no_reward_model() -> None:
    assert not isinstance(load_scorer("arith-steps"), RewardModel)
