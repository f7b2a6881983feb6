"""Loading: every missing piece has its own message, and what loads is ready to sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stepmark import ConfigError, Problem, Sampling, SetupError
from stepmark.engines import TransformersEngine, load_policy, render
from stepmark.tasks.arith_model import arith_tokenizer, tiny_llama
from stepmark.tasks.prompts import PromptTemplate


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def copy(checkpoint: Path, target: Path, *, without: str) -> Path:
    target.mkdir()
    for path in checkpoint.iterdir():
        if not path.name.startswith(without):
            (target / path.name).write_bytes(path.read_bytes())
    return target


def test_a_checkpoint_samples_what_its_model_samples(checkpoint: Path) -> None:
    engine = TransformersEngine.load(checkpoint)
    tokenizer: Any = arith_tokenizer()
    made = TransformersEngine(tiny_llama(tokenizer, seed=0), tokenizer)
    problem, template = Problem("a", "Zoe has 15 coins.", None), PromptTemplate("t")
    sampling = Sampling(max_tokens=8)
    first = engine.regenerate(render(problem, engine.tokenizer, template), 0, sampling, 0)
    second = made.regenerate(render(problem, tokenizer, template), 0, sampling, 0)
    assert (first.ids, first.text) == (second.ids, second.text)
    assert not engine.model.training


def test_the_dtype_is_the_one_asked_for(checkpoint: Path) -> None:
    assert load_policy(checkpoint, dtype="bfloat16", device="cpu")[0].dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="float64"):
        load_policy(checkpoint, dtype="float64")
    with pytest.raises(ConfigError, match="'tpu9' cannot be used"):
        load_policy(checkpoint, device="tpu9")


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("tokenizer", "has no tokenizer"),
        ("config", "holds no config.json"),
        ("model", "cannot be loaded"),
    ],
)
def test_a_missing_piece_is_named(
    checkpoint: Path, tmp_path: Path, without: str, words: str
) -> None:
    with pytest.raises(SetupError, match=words):
        load_policy(copy(checkpoint, tmp_path / "part", without=without))


def test_a_missing_folder_and_an_unreachable_hub_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="There is no model folder"):
        load_policy(tmp_path / "none" / "of" / "it")
    with pytest.raises(SetupError, match="nor to be had from the hub"):
        load_policy("stepmark-nobody/no-model")
