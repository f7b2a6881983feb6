"""The estimate of memory in ``train --dry-run``, which loads no model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepmark.cli import app as command

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""


def dry_run(model: str, *more: str) -> int:
    return command.run(["train", "--task", ARITH, "--model", model, "--dry-run", *more])


def test_a_config_alone_is_enough_for_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import LlamaConfig

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
    ).save_pretrained("billion")
    assert dry_run("billion", "--json") == 0
    said = capsys.readouterr()
    assert "algorithm.mu" in json.loads(said.out)
    assert re.search(r"weights of the policy +4,196\n", said.err)
    assert "frozen copies of it (1)" in said.err
    assert dry_run("billion", "--backend", "sft") == 0
    said = capsys.readouterr().err
    assert "frozen copies" not in said
    assert "while sampling" not in said


def test_a_model_that_is_not_here_is_said_to_have_no_estimate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dry_run("someone/some-model") == 0
    assert "memory: no estimate" in capsys.readouterr().err
