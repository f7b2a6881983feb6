"""Reward models that learn further, and rows that cannot be scored among those that can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForTokenClassification

from stepmark.errors import ConfigError
from stepmark.prm.checkpoint import read_card
from stepmark.prm.outcome_train import prepare_outcomes
from stepmark.prm.train import prepare, train_step_model
from stepmark.prm.train_config import PrmConfig, RmConfig

Folder = Callable[..., Path]


def rows(place: Path, *more: dict[str, Any]) -> Path:
    good = [
        {"problem": f"sum {n}?", "steps": [f"ok {n}", "so"], "labels": [1, n % 2]}
        for n in range(20)
    ]
    place.write_text("".join(f"{json.dumps(row)}\n" for row in (*good, *more)))
    return place


def settings(base: Path, file: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {
        "model": {"base": str(base), "device": "cpu"},
        "data": {"rows": [str(file)], "held_out": 0.2},
        "encoding": {"max_tokens": 200},
        "algorithm": {"steps": 2, "rows_per_step": 4, "tokens_per_microbatch": 400},
    }
    for key, value in changes.items():
        table, _, name = key.partition("__")
        tree[table][name] = value
    return tree


def train(out: Path, base: Path, file: Path, **changes: Any) -> Path:
    made = PrmConfig.model_validate(settings(base, file, **changes))
    return train_step_model(prepare(made), out).final


def test_a_reward_model_goes_on_with_its_own_words(tiny_base: Folder, tmp_path: Path) -> None:
    file, head = rows(tmp_path / "rows.jsonl"), {"model__head": "two_logits"}
    words = {"model__wrong": "+", "model__right": "-"}
    first = train(tmp_path / "one", tiny_base(), file, **head, **words)
    tokens = read_card(first).tokens
    assert read_card(train(tmp_path / "two", first, file, **head)).tokens == tokens
    again = train(tmp_path / "three", first, file, **head, **words)
    assert read_card(again).tokens == tokens
    with pytest.raises(ConfigError, match=r"model\.right is 'y'(.|\n)*trained with '-'"):
        train(tmp_path / "four", first, file, **head, model__right="y")


def test_weights_of_a_reward_model_are_not_drawn_anew_in_silence(
    tiny_base: Folder, tmp_path: Path
) -> None:
    file = rows(tmp_path / "rows.jsonl")
    first = train(tmp_path / "one", tiny_base(), file)
    tree = settings(first, file, model__from_scratch=True)
    with pytest.raises(ConfigError, match=r"model\.from_scratch is true(.|\n)*reward model"):
        prepare(PrmConfig.model_validate(tree))
    with pytest.raises(ConfigError, match=r"model\.from_scratch is true(.|\n)*reward model"):
        prepare_outcomes(RmConfig.model_validate(_outcomes(tree, tmp_path)))


def _outcomes(tree: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    given = [
        {"problem": f"sum {n}?", "steps": ["so"], "labels": [1], "final_correct": bool(n % 2)}
        for n in range(8)
    ]
    file = folder / "outcomes.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return tree | {"data": {"rows": [str(file)], "held_out": 0.0}}


@pytest.mark.parametrize("steps", [[], ["", " "]])
def test_a_row_without_words_is_dropped_and_stops_nothing(
    tiny_base: Folder, tmp_path: Path, steps: list[str]
) -> None:
    odd = {"problem": "odd?", "steps": steps, "labels": [1] * len(steps)}
    file = rows(tmp_path / "rows.jsonl", odd)
    final = train(tmp_path / "run", tiny_base(), file, data__held_out=0.0, encoding__separator="")
    shown = [row.problem for row in read_card(final).self_test]
    assert len(shown) == 3
    assert "odd?" not in shown
    counts = json.loads((tmp_path / "run" / "data.json").read_text())["train"]
    assert counts["dropped"] == {"empty step" if steps else "no label": 1}


def test_adapters_stand_beside_the_layers_of_gpt2_too(tiny_base: Folder, tmp_path: Path) -> None:
    base = tiny_base("gpt2")
    final = train(tmp_path / "run", base, rows(tmp_path / "rows.jsonl"), model__peft="lora")
    found = AutoModelForTokenClassification.from_pretrained(final)
    assert not any("lora" in name for name in found.state_dict())
    names = json.loads((final / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert {name.rpartition(".")[2] for name in names} == {"c_attn", "c_proj", "c_fc"}
