"""``algorithm.trackers``: the same numbers as metrics.jsonl, in a tracker of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""

OWN = """
import json
from accelerate.tracking import GeneralTracker

class Lines(GeneralTracker):
    name = "lines"
    requires_logging_directory = False
    tracker = None

    def __init__(self, run_name):
        super().__init__()

    def log(self, values, step=None, **kwargs):
        with open("seen.jsonl", "a") as file:
            file.write(json.dumps({"step": step, **values}) + "\\n")
"""


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
    Path("own.py").write_text(OWN)
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


def test_a_tracker_sees_every_number_of_metrics_jsonl(model) -> None:
    assert train(model, "--set", "algorithm.trackers=own.py:Lines") == 0
    merged: dict[int, dict] = {}
    for line in Path("seen.jsonl").read_text().splitlines():
        row = json.loads(line)
        merged.setdefault(row["step"], {}).update(row)
    assert list(merged.values()) == RunFolder.open(Path("r")).metrics()


def test_a_run_is_resumed_with_other_trackers(model) -> None:
    assert train(model) == 0
    assert train(model, "--resume", "--set", "algorithm.trackers=own.py:Lines") == 0
    assert train(model, "--resume", "--set", "algorithm.mu=2") == 2


def test_an_unknown_tracker_ends_before_a_model_is_loaded(model, capsys) -> None:
    assert train("no-such-model", "--set", "algorithm.trackers=wandbb") == 2
    assert "Did you mean 'wandb'?" in capsys.readouterr().err
    assert not Path("r").exists()
