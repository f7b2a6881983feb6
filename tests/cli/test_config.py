"""``stepmark config``: what is shown is what a run would read."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

from stepmark.cli.app import run
from stepmark.config import compose


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_show_names_the_source_of_every_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("[rollout]\nmax_tokens = 99\n")
    arguments = ("--preset", "deepseekmath", "--config", "mine.toml", "--set", "algorithm.beta=0.1")
    shown = json.loads(said(capsys, "show", *arguments, "--json"))
    assert shown["rollout.max_tokens"] == {"value": 99, "origin": "mine.toml"}
    assert shown["rollout.group_size"] == {"value": 64, "origin": "preset deepseekmath"}
    assert shown["algorithm.beta"] == {"value": 0.1, "origin": "--set"}
    assert shown["rollout.seed"] == {"value": 0, "origin": "default"}
    lines = said(capsys, "show", *arguments).splitlines()
    assert [line.split() for line in lines if "max_tokens" in line] == [
        ["max_tokens", "99", "mine.toml"]
    ]


def test_show_marks_what_must_still_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "show")
    assert [line.split() for line in shown.splitlines() if "policy" in line] == [
        ["policy", "must", "be", "set"]
    ]


def test_shown_toml_is_a_file_that_composes_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "show", "--preset", "deepseekmath", "--toml")
    path = tmp_path / "run.toml"
    path.write_text(text)
    first = json.loads(said(capsys, "show", "--preset", "deepseekmath", "--json"))
    second = json.loads(said(capsys, "show", "--config", str(path), "--json"))
    differing = {
        key: (first[key]["value"], second[key]["value"])
        for key in first
        if first[key]["value"] != second[key]["value"] and second[key]["value"] != "none"
    }
    assert differing == {}


def test_wrong_settings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--set", "algorithm.kl_coef=1"]) == 2
    assert "algorithm.beta" in capsys.readouterr().err
    assert run(["config", "show", "--set", "algorithm.backend=grop"]) == 2
    assert "Did you mean 'grpo'?" in capsys.readouterr().err


def test_schema_lists_every_key_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "schema")
    assert "rollout.group_size int = 8" in shown
    assert "algorithm.beta" in shown
    schema = json.loads(said(capsys, "schema", "--json"))
    assert set(schema["properties"]) == {"model", "data", "rollout", "reward", "algorithm"}


def test_presets_are_listed_and_printed_with_their_sources(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "deepseekmath" in said(capsys, "presets")
    text = said(capsys, "presets", "deepseekmath")
    assert tomllib.loads(text) == compose(preset="deepseekmath").tree
    values = [line for line in text.splitlines() if " = " in line]
    assert all("# 4." in line or "# ours" in line for line in values)
    assert run(["config", "presets", "nope"]) == 2


def test_aliases_answer_for_one_name_or_list_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "aliases", "num_generations").startswith(
        "TRL's num_generations is rollout."
    )
    assert "kl_loss_coef" in said(capsys, "aliases")
    assert json.loads(said(capsys, "aliases", "--json"))["algorithm.mu"]["verl"] == ["ppo_epochs"]
    assert "No setting" in said(capsys, "aliases", "zzz")


def test_without_torch_the_algorithm_table_is_shown_as_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else found(name)
    )
    assert run(["config", "show", "--preset", "deepseekmath", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["algorithm.beta"] == {"value": 0.04, "origin": "preset deepseekmath"}
    assert "algorithm.clip_low" not in shown
    assert run(["config", "show", "--set", "rollout.group_size=0"]) == 2
    assert "torch is not installed" in capsys.readouterr().err


def test_schema_follows_the_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert "algorithm.beta" not in said(capsys, "schema", "--backend", "sft")
