from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from stepmark.config.tables import run_config
from stepmark.errors import ConfigError
from stepmark.rl_backends import Grpo, GrpoConfig, Sft, SftConfig, backends, check


def test_defaults_of_grpo_are_deepseekmaths() -> None:
    config = GrpoConfig()
    assert (config.beta, config.learning_rate, config.mu) == (0.04, 1e-6, 1)
    assert (config.clip_low, config.clip_high, config.kl) == (0.2, 0.2, "k3")
    assert config.aggregation == "sequence-mean"


@pytest.mark.parametrize("model", [GrpoConfig, SftConfig])
def test_every_setting_is_documented_and_unknown_ones_are_refused(model) -> None:
    assert all(field.description for field in model.model_fields.values())
    with pytest.raises(ValidationError, match="Extra inputs"):
        model(learning_rat=1.0)


def test_settings_of_two_tables_that_cannot_work_are_refused_with_both_names() -> None:
    model = run_config(GrpoConfig)
    run = model(model={"policy": "x"}, rollout={"group_size": 1})
    with pytest.raises(ConfigError, match=r"rollout.group_size is 1(.|\n)*algorithm.backend"):
        check(run, Grpo)
    run = model(
        model={"policy": "x"}, rollout={"prompts_per_step": 2}, algorithm={"minibatches": 3}
    )
    with pytest.raises(ConfigError, match=r"algorithm.minibatches is 3(.|\n)*prompts_per_step"):
        check(run, Grpo)
    run = model(model={"policy": "x", "dtype": "bfloat16"})
    with pytest.raises(
        ConfigError, match=r"model.dtype is \"bfloat16\" and algorithm.learning_rate"
    ):
        check(run, Grpo)
    check(run_config(SftConfig)(model={"policy": "x"}, rollout={"group_size": 1}), Sft)


def test_an_outer_iteration_needs_a_step() -> None:
    with pytest.raises(ValidationError, match="outer is 5 and steps is 4"):
        GrpoConfig(steps=4, outer=5)


def test_both_backends_are_registered() -> None:
    assert {"grpo", "sft"} <= set(backends.names())
    assert backends.load("grpo") is Grpo


def test_settings_are_read_without_torch() -> None:
    code = "import sys, stepmark.rl_backends as r; r.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
