from __future__ import annotations

import dataclasses
import os
import signal
import threading
from typing import Any

import pytest
import torch

from stepmark.errors import ConfigError, DataError, EngineError, RunError, Stopped, VerifierError
from stepmark.rl_backends import (
    Evaluated,
    Grpo,
    GrpoConfig,
    Policy,
    Reward,
    Saved,
    Sft,
    SftConfig,
    Started,
    StepDone,
)
from stepmark.training.checkpoint import step_folder
from stepmark.types import Verdict


def backend_of(kind: str, **given):
    common = {"steps": 4, "learning_rate": 1e-2, "save_every": 1, "keep_checkpoints": 9, **given}
    if kind == "sft":
        return Sft(SftConfig(**common))
    return Grpo(GrpoConfig(outer=2, mu=2, minibatches=2, **common))


def same(one, two) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_grpo_learns_a_bandit_of_three_arms(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 8, "max_tokens": 1})
    result = run.train(Grpo(GrpoConfig(steps=40, learning_rate=2e-2, beta=0.001)))
    rewards = [row["reward"] for row in run.folder.metrics() if "reward" in row]
    assert sum(rewards[:3]) / 3 < 0.5
    assert sum(rewards[-5:]) / 5 > 0.95
    assert result.step == 40


def test_sft_lowers_the_loss_of_solutions_and_their_end_tokens(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"max_tokens": 8})
    run.train(Sft(SftConfig(steps=40, learning_rate=3e-2)))
    losses = [row["loss"] for row in run.folder.metrics()]
    assert losses[-1] < 0.5 < 1.5 < losses[0]
    # "b c" and the end token.
    assert run.folder.metrics()[0]["completions/mean_length"] == 3


@pytest.fixture(scope="module")
def straight_runs() -> dict[str, Any]:
    """Runs that were not stopped, by backend, with their results: made once, only looked at."""
    return {}


@pytest.mark.parametrize("kind", ["sft", "grpo"])
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_resumed_run_equals_a_straight_one_bit_for_bit(
    bandit, tmp_path, straight_runs, kind, stop_after
) -> None:
    evaluate = lambda policy, step: {"accuracy": -float(step)}  # noqa: E731
    if kind not in straight_runs:
        run = bandit(tmp_path / "straight")
        straight_runs[kind] = run, run.train(backend_of(kind, eval_every=2), evaluate=evaluate)
    straight, one = straight_runs[kind]

    class Killed(Exception):
        pass

    def kill(event) -> None:
        if isinstance(event, Saved) and event.step == stop_after:
            raise Killed

    broken = bandit(tmp_path / "broken")
    with pytest.raises(Killed):
        broken.train(backend_of(kind, eval_every=2), evaluate=evaluate, on_event=kill)
    again = bandit(tmp_path / "broken", resume=True)
    two = again.train(backend_of(kind, eval_every=2), evaluate=evaluate)
    assert same(straight.weights, again.weights)
    assert straight.folder.metrics() == again.folder.metrics()
    assert (one.best_step, one.best_value) == (two.best_step, two.best_value) == (0, 0.0)
    assert list(straight.folder.samples.rows()) == list(again.folder.samples.rows())


def test_a_resumed_step_takes_rollouts_and_verdicts_from_the_store(bandit, tmp_path) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(backend_of("grpo"))

    class Killed(Exception):
        pass

    def kill(event) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            raise Killed

    broken = bandit(tmp_path / "broken")
    with pytest.raises(Killed):
        broken.train(backend_of("grpo"), on_event=kill)
    again = bandit(tmp_path / "broken", resume=True)
    drawn: list[int] = []
    generate = again.engine.generate

    def watched(prompts, n, sampling, seed):
        drawn.append(len(prompts))
        return generate(prompts, n, sampling, seed)

    again.engine.generate = watched
    again.train(backend_of("grpo"))
    assert drawn == [3], "only step 4 is drawn; step 3 lies in the store"
    assert len(again.verifier.marked) == 3 * 4
    assert same(straight.weights, again.weights)


def test_a_finished_run_that_is_resumed_does_nothing(bandit, tmp_path) -> None:
    first = bandit(tmp_path / "run")
    one = first.train(backend_of("grpo"))
    again = bandit(tmp_path / "run", resume=True)
    two = again.train(backend_of("grpo"))
    assert not again.verifier.marked
    assert same(first.weights, again.weights)
    assert two.metrics["loss"] == one.metrics["loss"]


def test_a_torn_checkpoint_is_refused_by_name_and_the_one_before_used(
    bandit, tmp_path, caplog
) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(backend_of("grpo"))
    final = tmp_path / "straight" / "checkpoints" / "final" / "model.safetensors"
    final.write_bytes(final.read_bytes()[:-100])
    torn = step_folder(tmp_path / "straight" / "checkpoints", 3) / "state" / "training.pt"
    torn.unlink()
    again = bandit(tmp_path / "straight", resume=True)
    again.train(backend_of("grpo"))
    assert "final is refused: model.safetensors is not what was written" in caplog.text
    assert "step-000003 is refused: state/training.pt is missing" in caplog.text
    assert same(straight.weights, again.weights)


def test_resuming_with_other_first_weights_is_refused(bandit, tmp_path) -> None:
    bandit(tmp_path / "run").train(backend_of("sft"))
    again = bandit(tmp_path / "run", resume=True)
    with torch.no_grad():
        next(again.policy.model.parameters()).add_(1.0)
    with pytest.raises(RunError, match="began with other weights"):
        again.train(backend_of("sft"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_a_safe_point_and_the_run_goes_on_exactly(
    bandit, tmp_path, number
) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(backend_of("grpo", save_every=None))

    def press(event) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            os.kill(os.getpid(), number)

    broken = bandit(tmp_path / "broken")
    with pytest.raises(Stopped, match="after step 2 of 4") as stopped:
        broken.train(backend_of("grpo", save_every=None), on_event=press)
    assert stopped.value.exit_code == 128 + number
    assert "can be resumed" in str(stopped.value)
    again = bandit(tmp_path / "broken", resume=True)
    again.train(backend_of("grpo", save_every=None))
    assert same(straight.weights, again.weights)
    assert straight.folder.metrics() == again.folder.metrics()


def test_a_signal_while_drawing_gives_up_that_step(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    generate = run.engine.generate

    def interrupted(prompts, n, sampling, seed):
        os.kill(os.getpid(), signal.SIGINT)
        yield from generate(prompts, n, sampling, seed)

    run.engine.generate = interrupted
    with pytest.raises(Stopped, match="after step 0"):
        run.train(backend_of("grpo"))
    assert not list(run.folder.samples.rows())
    assert (tmp_path / "run" / "checkpoints" / "step-000000").is_dir()


def test_the_second_signal_stops_at_once(bandit, tmp_path) -> None:
    def press(event) -> None:
        if isinstance(event, StepDone):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path / "run").train(backend_of("grpo"), on_event=press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    bandit(tmp_path / "run", resume=True).train(backend_of("grpo"))


def test_training_outside_the_main_thread_works_without_signals(bandit, tmp_path) -> None:
    found: list[int] = []
    run = bandit(tmp_path / "run")
    thread = threading.Thread(target=lambda: found.append(run.train(backend_of("sft")).step))
    thread.start()
    thread.join()
    assert found == [4]


class Broken:
    key = "broken@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items):
        return [Verdict.failed("verifier_raised", traceback="Traceback: boom") for _ in items]


def test_above_the_error_share_the_run_stops_with_the_first_traceback(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run", verifier=Broken())
    with pytest.raises(VerifierError, match=r"12 of 12 verdicts of step 1(.|\n)*boom"):
        run.train(backend_of("grpo"))
    assert len(run.folder.samples.verdicts("broken@1")) == 12
    # Mended, it goes on: errors above the share are no marks and are marked again.
    mended = bandit(tmp_path / "run", resume=True)
    mended.verifier.key = "broken@1"
    assert mended.train(backend_of("grpo")).step == 4
    assert mended.verifier.marked


class Flaky:
    """An error on one completion of each problem."""

    key = "flaky@1"
    columns: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, items):
        self.calls += 1
        failed = Verdict.failed("verifier_raised", traceback="Traceback: boom")
        return [failed, *(Verdict.marked(0.0, "judged") for _ in items[1:])]


def test_errors_below_the_share_of_all_verdicts_are_kept_when_a_step_is_resumed(
    bandit, tmp_path
) -> None:
    def train(*, resume: bool, **given):
        run, flaky = bandit(tmp_path / "run", resume=resume), Flaky()
        # 1 of 4 of the one verifier, 1 of 8 of both.
        reward = Reward(((run.verifier, 1.0), (flaky, 1.0)))
        run.train(backend_of("grpo", max_error_share=0.2), reward=reward, **given)
        return flaky

    def killed(event) -> None:
        if isinstance(event, StepDone):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(resume=False, on_event=killed)
    assert train(resume=True).calls == 3 * 3  # three groups in each step after the first


@pytest.mark.parametrize("error", [DataError, ConfigError])
def test_data_that_fail_in_a_late_step_leave_a_checkpoint_of_the_step_before(
    bandit, tmp_path, error
) -> None:
    run = bandit(tmp_path / "run")
    good = run.train.__globals__["bandit_prompts"](run.policy)

    def prompts(step: int):
        if step == 3:
            raise error("a prompt of step 3 is too long")
        return good(step)

    with pytest.raises(error, match="step 3"):
        run.train(backend_of("grpo", save_every=None), prompts=prompts)
    assert step_folder(run.folder.checkpoints, 2).is_dir()


def test_a_held_out_evaluation_that_fails_costs_no_step_and_is_done_first_on_resuming(
    bandit, tmp_path
) -> None:
    backend = backend_of("grpo", save_every=None, eval_every=1)

    def accuracy(policy: Policy, step: int) -> dict[str, float]:
        return {"accuracy": 0.1 * step}

    def failing(policy: Policy, step: int) -> dict[str, float]:
        if step == 2:
            raise VerifierError("too many errors")
        return accuracy(policy, step)

    straight = bandit(tmp_path / "straight")
    straight.train(backend, evaluate=accuracy)
    with pytest.raises(VerifierError, match="too many"):
        bandit(tmp_path / "run").train(backend, evaluate=failing)
    resumed = bandit(tmp_path / "run", resume=True)
    resumed.train(backend, evaluate=accuracy)
    assert resumed.folder.metrics() == straight.folder.metrics()
    assert same(resumed.weights, straight.weights)


def test_best_is_the_highest_metric_and_old_checkpoints_go(bandit, tmp_path) -> None:
    seen: list[str] = []
    values = {0: 0.1, 1: 0.3, 2: 0.7, 3: 0.7, 4: 0.2}
    run = bandit(tmp_path / "run")
    at_two: dict[str, torch.Tensor] = {}

    def evaluate(policy: Policy, step: int) -> dict[str, float]:
        if step == 2:
            at_two.update({k: v.clone() for k, v in policy.model.state_dict().items()})
        return {"accuracy": values[step]}

    result = run.train(
        backend_of("grpo", keep_checkpoints=2, eval_every=1),
        evaluate=evaluate,
        on_event=lambda event: seen.append(type(event).__name__),
    )
    assert (result.best_step, result.best_value) == (2, 0.7)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["best", "final", "step-000002", "step-000003"]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert same(at_two, AutoModelForCausalLM.from_pretrained(result.best).state_dict())
    assert AutoTokenizer.from_pretrained(result.final).eos_token == "<eos>"
    assert [row["eval/accuracy"] for row in run.folder.metrics()] == list(values.values())
    assert seen[:3] == [Started.__name__, Evaluated.__name__, StepDone.__name__]
    assert "timings.jsonl" in {path.name for path in (tmp_path / "run").iterdir()}
    assert not any("_s" in key[-2:] for row in run.folder.metrics() for key in row)


def test_micro_batches_do_not_change_what_is_learnt(bandit, tmp_path) -> None:
    one = bandit(tmp_path / "one")
    one.train(backend_of("grpo", tokens_per_microbatch=1000))
    two = bandit(tmp_path / "two")
    two.train(backend_of("grpo", tokens_per_microbatch=9))
    for name, weight in one.weights.items():
        assert torch.allclose(weight, two.weights[name], atol=1e-5)


def test_an_engine_that_is_not_the_model_is_refused(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    generate = run.engine.generate

    def off(prompts, n, sampling, seed):
        for group in generate(prompts, n, sampling, seed):
            rollouts = tuple(
                dataclasses.replace(r, logps=tuple(x - 0.01 for x in r.logps))
                for r in group.rollouts
            )
            yield dataclasses.replace(group, rollouts=rollouts)

    run.engine.generate = off
    with pytest.raises(EngineError, match=r"differ from the policy's by 0\.01"):
        run.train(backend_of("grpo"))


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(bandit, tmp_path) -> None:
    class Nan(Grpo):
        def losses(self, out, micro, weights):
            losses = super().losses(out, micro, weights)
            return dataclasses.replace(losses, terms={"policy": losses.terms["policy"] * torch.nan})

    run = bandit(tmp_path / "run")
    before = {name: weight.clone() for name, weight in run.weights.items()}
    with pytest.raises(RunError, match=r"loss/policy is not a finite number in step 1"):
        run.train(Nan())
    assert same(before, run.weights)


def test_group_size_one_is_refused_by_name(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.rollout = run.rollout.model_copy(update={"group_size": 1})
    with pytest.raises(ConfigError, match=r"rollout.group_size is 1(.|\n)*algorithm.backend"):
        run.train(Grpo())
    assert run.train(backend_of("sft")).step == 4


def test_a_problem_without_a_solution_cannot_be_demonstrated(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")

    def prompts(step):
        from stepmark.types import Problem, Prompt

        return [Prompt(Problem("p/1", "a", "b"), (2,), "a")]

    with pytest.raises(DataError, match="'p/1' has no worked solution"):
        run.train(backend_of("sft"), prompts=prompts)


class Fixed:
    columns: frozenset[str] = frozenset()

    def __init__(self, key: str, score: float | None) -> None:
        self.key, self.score = key, score

    def __call__(self, items):
        one = (
            Verdict.abstained("declined") if self.score is None else Verdict.marked(self.score, "x")
        )
        return [one for _ in items]


def test_the_reward_is_the_weighted_sum_and_missing_when_a_needed_score_is() -> None:
    def total(*terms):
        reward = Reward(tuple((Fixed(f"v{n}@1", score), w) for n, (score, w) in enumerate(terms)))
        return reward.total({v.key: v([None])[0] for v, _ in reward.terms})

    assert total((1.0, 1.0), (0.5, 0.2)) == pytest.approx(1.1)
    assert total((1.0, 1.0), (None, 0.2)) is None
    assert total((1.0, 1.0), (None, 0.0)) == 1.0
    with pytest.raises(ConfigError, match="stands twice"):
        Reward(((Fixed("v@1", 1.0), 1.0), (Fixed("v@1", 0.0), 1.0)))
