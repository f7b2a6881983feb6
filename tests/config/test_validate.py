"""What is wrong with settings is one message: key, value, source, what is allowed, the remedy."""

from __future__ import annotations

import tomllib
from typing import Any, Literal

import pytest
from pydantic import Field

from stepmark.config import (
    ALIASES,
    ModelTable,
    RunConfig,
    alias_hint,
    compose,
    preset_names,
    run_config,
    settings_of,
    to_toml,
    validate,
)
from stepmark.config.aliases import TABLE
from stepmark.config.tables import Table
from stepmark.errors import ConfigError
from stepmark.rl_backends.config import AlgorithmConfig
from stepmark.rl_backends.dpo_config import DpoConfig
from stepmark.rl_backends.ppo_config import PpoConfig


class Plain(Table):
    """A backend of three settings."""

    beta: float = Field(default=0.04, ge=0)
    """Weight of the KL term."""
    scale: Literal["std", "none"] = "std"
    """What the rewards are divided by."""
    clip: float | None = 0.2
    """Clip range; absent: no clipping."""


RUN = run_config(Plain)
OF_BACKENDS = {"scale", *PpoConfig.model_fields, *DpoConfig.model_fields}


def built(*sets: str) -> RunConfig:
    composed = compose(sets=["model.policy=tiny", *sets])
    return validate(RUN, composed.tree, origin=composed.origin_of)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ("rollout.num_generations=8", ["'rollout.num_generations'", "rollout.group_size here"]),
        ("algorithm.kl_coef=1", ["algorithm.beta here"]),
        ("algorithm.lr=1", ["algorithm.learning_rate"]),
        ("rollout.max_new_tokens=1", ["rollout.max_tokens"]),
        ("rollout.grop_size=8", ["Did you mean 'rollout.group_size'?", "prompts_per_step"]),
        ("rollout.zzz=8", ["'rollout.zzz'", "It was given as 8", "[rollout] has engine"]),
        ("rollout.group_size=0", ["rollout.group_size is 0 (from --set)", "1 or more"]),
        ("rollout.temperature=hot", ["'hot'", "a number"]),
        ("rollout.temperature=0", ["greater than 0"]),
        ("rollout.group_size=none", ["'none'", "a whole number"]),
        ("model.dtype=float16", ["'float16'", "'float32' or 'bfloat16'"]),
        ("model.policy=", ["must not be empty"]),
        ("data.task=[1]", ["data.task.0 is 1 (from --set)", "text"]),
        ("data.weights=[1.0]", ["data.weights", "data.task", "one per task"]),
        ("data.prompt_column=q", ["data.prompt_column", "data.dataset"]),
        ("reward.verifiers=[]", ["1 or more entries"]),
        ("reward.verifiers=3", ["must be a list"]),
        ("reward.verifiers=[{weight=1}]", ["reward.verifiers.0.name is not set"]),
        ('reward.verifiers=[{name="math", weight="x"}]', ["reward.verifiers.0.weight is 'x'"]),
        ('reward.verifiers=["math?x"]', ["'x'", "no value"]),
        ("algorithm.beta=-1", ["algorithm.beta is -1", "0 or more"]),
    ],
)
def test_each_problem_is_told_with_key_value_source_and_remedy(sets: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        built(sets)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_policy_is_told_with_its_meaning_and_how_to_set_it() -> None:
    with pytest.raises(ConfigError, match=r"model\.policy is not set\. Folder or hub .*--set"):
        validate(RUN, {})


def test_many_problems_fit_three_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        built("rollout.group_size=0", "rollout.seed=-1", "model.dtype=x", "algorithm.beta=-1")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[-1] == "... and 2 more problems in the settings."


def test_none_means_absent_only_where_a_setting_may_be_absent() -> None:
    config: Any = built("data.eval_limit=none", "algorithm.scale=none", "algorithm.clip=none")
    assert config.data.eval_limit is None
    assert config.algorithm.scale == "none"
    assert config.algorithm.clip is None


def test_a_written_configuration_reads_back_equal() -> None:
    config = built('reward.verifiers=["math?units=require", {name="exact", weight=0.5, case=true}]')
    assert validate(RUN, tomllib.loads(to_toml(config.model_dump()))) == config


def test_verifiers_are_references_or_tables_with_settings_beside_or_below() -> None:
    for text in (
        '"math?units=require"',
        '["math?units=require"]',
        '{name = "math", units = "require"}',
        '[{name = "math", settings = {units = "require"}}]',
    ):
        (share,) = built(f"reward.verifiers={text}").reward.verifiers
        assert (share.name, share.weight, dict(share.settings)) == (
            "math",
            1.0,
            {"units": "require"},
        )
        assert str(share.reference) == "math?units=require"


def test_task_lists_are_split_at_commas_outside_of_settings() -> None:
    assert built("data.task=gsm8k,arith?a=[1,2]&b=3, math").data.task == (
        "gsm8k",
        "arith?a=[1,2]&b=3",
        "math",
    )


def test_a_task_and_a_data_set_exclude_each_other_by_both_names() -> None:
    with pytest.raises(ConfigError, match=r"data\.task \(gsm8k\) and data\.dataset \(f\.jsonl\)"):
        built("data.task=gsm8k", "data.dataset=f.jsonl")


def test_the_algorithm_table_gains_a_backend_only_where_it_has_none() -> None:
    assert built("algorithm.backend=mine").model_dump()["algorithm"]["backend"] == "mine"
    assert run_config(AlgorithmConfig).model_fields["algorithm"].annotation is AlgorithmConfig


@pytest.mark.parametrize("name", preset_names())
def test_presets_fit_the_tables(name: str) -> None:
    composed = compose(preset=name)
    tree = composed.tree | {"model": {"policy": "tiny"} | composed.tree.get("model", {})}
    common = {
        key: value
        for key, value in tree["algorithm"].items()
        if key in AlgorithmConfig.model_fields
    }
    validate(run_config(AlgorithmConfig), tree | {"algorithm": common})


def test_settings_list_defaults_sources_and_what_must_be_set() -> None:
    composed = compose(sets=["rollout.group_size=4", "algorithm.unknown=1"])
    rows = {row.key: row for row in settings_of(RUN, composed)}
    assert (rows["rollout.group_size"].value, rows["rollout.group_size"].origin) == (4, "--set")
    assert (rows["rollout.seed"].value, rows["rollout.seed"].origin) == (0, "default")
    assert rows["model.policy"].origin == "must be set"
    assert rows["data.weights"].type == "list of float | none"
    assert rows["algorithm.unknown"].value == 1
    assert all(row.meaning for row in rows.values() if row.key not in {"algorithm.unknown"})


def test_every_alias_of_a_table_leads_to_a_setting_that_exists() -> None:
    known = {row.key for row in settings_of(run_config(AlgorithmConfig))}
    for row in TABLE:
        in_backend = row.key in {f"algorithm.{name}" for name in OF_BACKENDS}
        assert " " in row.key or in_backend or row.key in known, row.key
    assert ALIASES["num_generations"] == "rollout.group_size"
    assert ALIASES["ppo_epochs"] == "algorithm.mu"
    assert "num_fewshot is eval run --prompt" in alias_hint("num_fewshot")
    assert (
        alias_hint("actor_rollout_ref.rollout.n")
        == "verl's actor_rollout_ref.rollout.n is rollout.group_size here."
    )


def test_a_model_alone_can_be_validated_with_its_place_in_messages() -> None:
    with pytest.raises(ConfigError, match=r"'model\.polcy'\. Did you mean 'model\.policy'"):
        validate(ModelTable, {"polcy": "x"}, prefix="model")
