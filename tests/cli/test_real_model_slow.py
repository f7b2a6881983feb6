"""Real input end to end: a real small model on real questions, through the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run
from stepmark.store import RunFolder

pytestmark = pytest.mark.slow


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_eval_run_on_sixteen_gsm8k_questions(
    smollm2: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "eval"
    task = f"gsm8k?path={data}/gsm8k/gsm8k_test.jsonl"
    command = ["eval", "run", "--model", str(smollm2), "--task", task, "--limit", "16"]
    code = run([*command, "--max-tokens", "160", "--out", str(out), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    row = json.loads(printed.out)["rows"][0]
    assert row["n"] == 16
    assert 0 <= row["accuracy"] <= row["accuracy_upper"] <= 1
    assert row["errors"] == 0
    folder = RunFolder.open(next(path.parent for path in out.rglob("summary.json")))
    samples = list(folder.samples.rows())
    assert len(samples) == 16
    bos = "<|im_start|>"  # SmolLM2's BOS also opens every turn of its chat template
    for sample in samples:
        assert sample.prompt.startswith(bos + "system")
        assert not sample.prompt.startswith(bos * 2)
        assert sample.prompt.count(bos + "user") == 1
        assert sample.prompt.endswith(bos + "assistant\n")
        assert sample.completion.strip()


def test_two_grpo_steps_on_real_questions_move_the_weights(
    smollm2: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "grpo"
    settings = {
        "rollout.prompts_per_step": 2,
        "rollout.group_size": 4,
        "rollout.max_tokens": 96,
        "algorithm.steps": 2,
        "algorithm.learning_rate": 1e-5,
        "algorithm.tokens_per_microbatch": 2048,
        "algorithm.save_every": 1,
    }
    command = ["train", "--backend", "grpo", "--model", str(smollm2), "--out", str(out)]
    command += ["--task", f"gsm8k?path={data}/gsm8k/gsm8k_train.jsonl", "--json"]
    # The reward of so small a model may be flat in both groups: format keeps a gradient flowing.
    reward = tmp_path / "shape.py"
    reward.write_text("def short(completion):\n    return 1 / (1 + len(completion) / 100)\n")
    command += ["--verifier", "math", "--verifier", f"{reward}:short"]
    code = run([*command, *(f"--set={key}={value}" for key, value in settings.items())])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    folder = RunFolder.open(out)
    rows = [row for row in folder.metrics() if row["step"] > 0]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert all(math.isfinite(value) for value in row.values())
    assert rows[0]["grad_norm"] > 0
    final = AutoModelForCausalLM.from_pretrained(out / "checkpoints" / "final")
    AutoTokenizer.from_pretrained(out / "checkpoints" / "final")
    first = AutoModelForCausalLM.from_pretrained(smollm2)
    moved = sum(
        int((a != b).sum()) for a, b in zip(first.parameters(), final.parameters(), strict=True)
    )
    assert moved > 0.5 * sum(p.numel() for p in first.parameters())
    assert all(torch.isfinite(p).all() for p in final.parameters())
    assert len(list(folder.samples.rows())) == 16
    assert len(folder.samples.verdict_keys()) == 2


def test_regrade_prints_the_authors_accuracies(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import time

    file = data / "recorded" / "responses_gsm8k_openai.jsonl"
    started = time.process_time()
    assert run(["eval", "regrade", str(file), "--out", str(tmp_path / "out")]) == 0
    assert time.process_time() - started < 10
    printed = capsys.readouterr().out
    for accuracy in ("21.7 %", "39.0 %", "34.7 %", "56.3 %"):
        assert accuracy in printed
    listed = (tmp_path / "out" / "disagreements.jsonl").read_text().splitlines()
    verdicts = rows_of(tmp_path / "out" / "verdicts.jsonl")
    assert len(verdicts) == 5276
    labels = [row["is_correct"] for row in rows_of(file)]
    differing = sum(bool(v["correct"]) != label for v, label in zip(verdicts, labels, strict=True))
    assert len(listed) == differing
