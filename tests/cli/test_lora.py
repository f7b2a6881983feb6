"""``model.peft`` on the command line: what is refused before a model is loaded, and a run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from stepmark.cli import app as command

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""

LORA = ("--set", "model.peft=lora")


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Llama of one layer with the arith tokenizer, in the working folder."""
    import torch

    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained("tiny")
    tokenizer.save_pretrained("tiny")
    return tmp_path / "tiny"


def train(*more: str, model: str = "tiny") -> int:
    return command.run(["train", "--task", ARITH, "--model", model, *more])


def test_a_dry_run_shows_settings_memory_and_a_word_on_the_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(*LORA, "--dry-run", "--json") == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert rows["model.peft.rank"] == {"value": 16, "origin": "--set"}
    assert rows["model.peft.target_modules"]["value"] == ["all-linear"]
    assert re.search(r"adapters +\d", said.err)
    assert "frozen adapters (1)" in said.err
    assert "weights of the base model" in said.err
    assert "--set algorithm.learning_rate=1e-05" in said.err
    assert train(*LORA, "--dry-run", "--set", "algorithm.learning_rate=1e-4") == 0
    assert "a rate for whole models" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.peft.rank=0", "model.peft.rank is 0 (from --set). It must be 1 or more."),
        ("model.peft.alpha=-1", "It must be greater than 0."),
        ("model.peft.dropout=0.05", "It must be 0: with dropout, log-probs in training would not"),
        ("model.peft=dora", """model.peft is 'dora'. It must be "lora", "none", or a table"""),
        ("model.peft.target_modules=q_prj", "Did you mean 'q_proj'?"),
        ("model.peft.lora_alpha=8", "lora_alpha is model.peft.alpha here"),
        ("model.lora_r=8", "TRL's lora_r is model.peft.rank here"),
        ("model.use_peft=true", "TRL's use_peft is model.peft here"),
        ("model.lora_target_modules=q_proj", "is model.peft.target_modules here"),
    ],
)
def test_wrong_settings_are_refused_before_a_model_is_loaded(
    tiny: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    (tiny / "model.safetensors").unlink()
    assert train("--set", setting) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


def test_without_peft_the_pip_line_comes_before_a_model_is_loaded(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny / "model.safetensors").unlink()
    monkeypatch.setitem(sys.modules, "peft", None)
    assert train(*LORA) == 2
    assert "pip install 'stepmark[peft]'" in capsys.readouterr().err


def test_a_run_trains_adapters_and_an_altered_base_is_refused_by_name(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    few = ("rollout.group_size=2", "rollout.prompts_per_step=2", "rollout.max_tokens=4")
    sets = (*few, "algorithm.steps=2", "algorithm.save_every=1", "data.eval_limit=2")
    sets = (*sets, "algorithm.learning_rate=1e-3", "model.peft.rank=2")
    given = [word for setting in sets for word in ("--set", setting)]
    assert train(*given, "--out", "run") == 0
    config = (Path("run") / "config.toml").read_text()
    assert "[model.peft]\nrank = 2\n" in config
    final, step = Path("run/checkpoints/final"), Path("run/checkpoints/step-000001")
    assert (final / "adapter/adapter_model.safetensors").is_file()
    assert "## LoRA" in (final / "README.md").read_text()
    assert not (step / "model.safetensors").exists()
    base = json.loads((step / "adapter/base.json").read_text())
    assert base["name"] == "tiny"
    assert train(*given, "--out", "run", "--resume") == 0
    assert train("--backend", "sft", "--dry-run", model=str(step)) == 0
    capsys.readouterr()
    weights = load_file(tiny / "model.safetensors")
    weights["model.norm.weight"] += 0.5
    save_file(weights, tiny / "model.safetensors", metadata={"format": "pt"})
    assert train(*given, "--out", "run", "--resume") == 2
    assert "base tiny was" in capsys.readouterr().err
