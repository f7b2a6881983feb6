"""Annotate, convert from the published layout, train: the way from a policy to a reward model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.prm import load_scorer
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama
from stepmark.types import StepItem


@pytest.mark.slow
def test_labels_in_math_shepherds_layout_train_a_reward_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each problem one solution is right and one goes wrong in its first line.

    An untrained model completes nothing, so that a line is right where the answer stands in it
    already: the labels are those of the verifier, and the reward model learns them.
    """
    monkeypatch.chdir(tmp_path)
    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=0, layers=2, width=32).save_pretrained("base")
    tokenizer.save_pretrained("base")
    task = load_task("arith?steps=1&max_start=6&max_change=5&product_share=0&size=60", "train")
    rows = [
        {
            "problem_id": problem.id,
            "problem": problem.text,
            "gold": problem.gold,
            "steps": [line.replace(f"= {problem.gold}", f"= {said}"), f"answer: {said}"],
        }
        for problem in task.problems
        for line in (problem.solution or "").splitlines()[:1]
        for said in (problem.gold, "27")
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--model", "base", "--n", "2", "--max-tokens", "4", "--out", "labels"]
    assert command.run(["prm", "annotate", "rows.jsonl", *flags]) == 0
    assert command.run(["prm", "convert", "labels/math-shepherd.jsonl", "--out", "back.jsonl"]) == 0
    sets = ["algorithm.steps=150", "algorithm.rows_per_step=16", "algorithm.learning_rate=3e-3"]
    sets += ["encoding.max_tokens=128", "model.device=cpu", "data.held_out=0.1"]
    words = [part for text in sets for part in ("--set", text)]
    given = ["--base", "base", "--data", "back.jsonl", "--out", "run", *words]
    assert command.run(["prm", "train", *given]) == 0
    scorer = load_scorer("run/checkpoints/final")
    steps = [("Step 1: 1 + 1 = 2", f"Step 2: answer: {n}") for n in (2, 27)]
    good, bad = scorer.score([StepItem(task.problems[0], own) for own in steps])
    assert (good.scores[-1] or 0) > 0.5 > (bad.scores[-1] or 0)
