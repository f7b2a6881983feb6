"""The page of a training run shows what the run's files hold."""

from __future__ import annotations

from pathlib import Path

from stepmark import Reason, Verdict
from stepmark.report.training import curves, last_samples, training_page
from stepmark.store import Key, RunFolder, Sample


def a_run(folder: Path, steps: int = 3) -> RunFolder:
    run = RunFolder.create(folder / "run", {"seed": 0}, {})
    for step in range(1, steps + 1):
        run.log_metrics(step, {"reward": step / 10, "loss": 1 / step, "eval/accuracy": 0.5})
        for k in range(4):
            text = f"answer: {k}"
            sample = Sample(f"p/{step}", k, step, "1 + 1?", "1 + 1?", text, None, None, "stop", "2")
            run.samples.append([sample])
            verdict = Verdict.marked(k == 2, Reason.EQUAL if k == 2 else Reason.DIFFERENT)
            run.samples.append_verdicts("math@1", [(Key(step, sample.id, k), verdict)])
    return run


def test_samples_are_of_the_last_step_and_none_is_shown_twice(tmp_path: Path) -> None:
    views = last_samples(a_run(tmp_path), 20)
    assert sorted(view.title for view in views) == [f"p/3, sample {k}" for k in range(4)]
    assert [view.correct for view in views].count(True) == 1


def test_a_run_with_rewards_draws_no_loss_and_one_without_draws_no_reward() -> None:
    rewarded = [{"step": s, "reward": 0.1, "loss": 2.0} for s in (1, 2)]
    assert [caption for _, caption in curves(rewarded)] == [
        "Mean reward of the completions sampled for training."
    ]
    supervised = [{"step": s, "loss": 2.0} for s in (1, 2)]
    assert [caption for _, caption in curves(supervised)] == ["Training loss."]


def test_the_page_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert training_page(run, "a run").html() == training_page(run, "a run").html()
    assert "p/3, sample 2" in training_page(run, "a run").html()
