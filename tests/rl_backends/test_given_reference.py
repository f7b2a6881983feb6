"""A reference of the user's that must become the policy has its weights, by name and by shape."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stepmark.errors import ConfigError
from stepmark.rl_backends import Grpo, GrpoConfig
from stepmark.store.run import RunFolder


def larger(policy: Any) -> Any:
    from transformers import AutoModelForCausalLM

    config = type(policy.config).from_dict({**policy.config.to_dict(), "hidden_size": 24})
    return AutoModelForCausalLM.from_config(config, dtype=policy.dtype)


def grpo(outer: int) -> Grpo:
    return Grpo(GrpoConfig(steps=2, beta=0.1, outer=outer))


def test_another_size_is_refused_at_the_start_where_the_policy_replaces_it(
    bandit, tmp_path
) -> None:
    run = bandit(tmp_path / "run")
    words = r"embed_tokens.weight' is (5, 24) in it and (5, 16) in the policy"
    with pytest.raises(ConfigError, match=re.escape(words)) as said:
        run.train(grpo(2), reference=larger(run.policy.model))
    assert "set algorithm.outer to 1" in str(said.value)
    assert RunFolder.open(tmp_path / "run").metrics() == []


def test_another_size_may_stay_the_reference_where_it_is_never_replaced(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    assert run.train(grpo(1), reference=larger(run.policy.model)).step == 2
