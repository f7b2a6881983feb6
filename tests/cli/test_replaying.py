"""What a run that stopped leaves behind, and how it is looked at again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.cli import app as command

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import torch

    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained("tiny")
    tokenizer.save_pretrained("tiny")
    Path("own.py").write_text("no minibatch")
    return "tiny"


def train(model: str, *more: str, steps: int = 2) -> int:
    small = (
        f"algorithm.steps={steps}",
        "rollout.group_size=2",
        "rollout.prompts_per_step=2",
        "rollout.max_tokens=8",
        "data.eval_limit=4",
    )
    sets = [part for text in small for part in ("--set", text)]
    return command.run(["train", "--model", model, "--task", ARITH, "--out", "r", *sets, *more])


def test_a_replayed_minibatch_names_its_worst_sample(model, capsys) -> None:
    tight = ("--backend", "sft", "--set", "algorithm.loss_limit=0.01")
    assert train(model, *tight) == 2
    file = "r/replay/step-000001/batch.pt"
    said = capsys.readouterr().err
    assert "which is beyond algorithm.loss_limit, in step 1" in said
    assert said.rstrip().endswith(f"stepmark train --replay-batch {file}")
    assert command.run(["train", "--replay-batch", file, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["numbers"]["loss"] == row["stopped_by"]["value"]
    norms = [one["grad_norm"] for one in row["samples"]]
    assert norms[row["worst"]] == max(norms)
    assert command.run(["train", "--replay-batch", file]) == 0
    said = capsys.readouterr().out
    assert f"The worst sample is {row['worst']}:" in said


def test_a_file_that_is_no_minibatch_is_refused(model, capsys) -> None:
    assert command.run(["train", "--replay-batch", "own.py"]) == 2
    assert "'own.py' cannot be replayed" in capsys.readouterr().err
