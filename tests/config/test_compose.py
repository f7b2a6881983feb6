"""Composition of settings: the later source wins, and every leaf knows where it came from."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.config import Composed, Flag, compose, preset_names, to_toml
from stepmark.errors import ConfigError, UnknownNameError


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_later_files_win_key_by_key_and_lists_are_replaced(tmp_path: Path) -> None:
    first = written(tmp_path, "a.toml", '[data]\ntask = ["gsm8k", "math"]\nsplit = "train"\n')
    second = written(tmp_path, "b.toml", '[data]\ntask = ["arith"]\n')
    composed = compose([first, second])
    assert composed.tree == {"data": {"task": ["arith"], "split": "train"}}
    assert composed.origin_of("data.task") == str(second)
    assert composed.origin_of("data.split") == str(first)


def test_order_is_preset_then_files_then_set_then_flags(tmp_path: Path) -> None:
    path = written(
        tmp_path, "a.toml", "[rollout]\ngroup_size = 2\nmax_tokens = 3\n[algorithm]\nmu = 9\n"
    )
    composed = compose(
        [path],
        ["rollout.max_tokens=4", "algorithm.mu=5"],
        {"algorithm.mu": Flag("--passes", 6), "model.policy": "m", "data.task": None},
        preset="deepseekmath",
    )
    assert composed.tree["rollout"] == {"group_size": 2, "prompts_per_step": 16, "max_tokens": 4}
    assert composed.tree["algorithm"]["mu"] == 6
    assert composed.origin["algorithm.mu"] == "--passes"
    assert composed.origin["model.policy"] == "--policy"
    assert composed.origin["rollout.max_tokens"] == "--set"
    assert composed.origin["rollout.group_size"] == str(path)
    assert composed.origin["rollout.prompts_per_step"] == "preset deepseekmath"
    assert composed.origin_of("rollout.seed") == "default"
    assert composed.origin_of("data.task") == "preset deepseekmath"


def test_a_value_in_place_of_a_table_forgets_what_was_below() -> None:
    composed = compose(sets=["reward.a.b=1", "reward.a=2"])
    assert composed == Composed({"reward": {"a": 2}}, {"reward.a": "--set"})
    composed = compose(sets=["reward.a=2", "reward.a.b=1"])
    assert composed == Composed({"reward": {"a": {"b": 1}}}, {"reward.a.b": "--set"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("1e-6", 1e-6),
        ("true", True),
        ('["a", "b"]', ["a", "b"]),
        ("plain words", "plain words"),
        ("a=b", "a=b"),
        ('"4"', "4"),
        ("none", "none"),
        ("", ""),
    ],
)
def test_overrides_are_toml_or_else_text(text: str, value: Any) -> None:
    assert compose(sets=[f"data.x={text}"]).tree == {"data": {"x": value}}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ("rolout.group_size=8", ["'rolout'", "Did you mean 'rollout'?"]),
        ("num_generations=8", ["TRL", "rollout.group_size"]),
        ("kl_loss_coef=0.1", ["verl", "algorithm.beta"]),
        ("train_batch_size=8", ["verl", "rollout.prompts_per_step", "OpenRLHF", "minibatches"]),
        ("rollout=8", ["is a table", "rollout.KEY=VALUE"]),
        ("rollout.group_size", ["table.key=value"]),
        ("=3", ["table.key=value"]),
        ("rollout..x=3", ["table.key=value"]),
    ],
)
def test_overrides_that_set_nothing_known_say_what_would(sets: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(sets=[sets])
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_bad_files_name_themselves_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no configuration file .*absent\.toml"):
        compose([tmp_path / "absent.toml"])
    with pytest.raises(ConfigError, match=r"bad\.toml' is not valid TOML: .*line 2"):
        compose([written(tmp_path, "bad.toml", "[model]\npolicy = path\n")])
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match="cannot be read"):
        compose([tmp_path / "latin.toml"])
    with pytest.raises(ConfigError, match="cannot be read"):
        compose([tmp_path])


def test_unknown_presets_are_answered_with_the_list() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'deepseekmath'"):
        compose(preset="deepseekmaths")
    with pytest.raises(UnknownNameError, match="--config FILE"):
        compose(preset="my/file.toml")
    assert "deepseekmath" in preset_names()


leaves = st.one_of(
    st.integers(-(2**60), 2**60), st.booleans(), st.floats(allow_nan=False), st.text(max_size=9)
)
keys = st.text("abcdefg_", min_size=1, max_size=5)
trees = st.dictionaries(
    keys, st.one_of(leaves, st.dictionaries(keys, leaves, max_size=3)), max_size=4
)


@given(tree=trees)
def test_toml_text_reads_back_as_the_same_tree(tree: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(tree)) == tree


@given(lower=trees, upper=trees)
def test_the_last_layer_is_found_whole_in_the_tree(
    lower: dict[str, Any], upper: dict[str, Any]
) -> None:
    composed = compose(flags={"data": lower}, tables=("data",))
    both = compose(flags={"data": lower} | {f"data.{key}": value for key, value in upper.items()})
    for key, value in upper.items():
        seen = both.tree["data"][key]
        assert value.items() <= seen.items() if isinstance(value, dict) else seen == value
    untouched = lower.keys() - upper.keys()
    assert {key: both.tree["data"][key] for key in untouched} == {
        key: lower[key] for key in untouched
    }
    assert composed.tree["data"] == lower
