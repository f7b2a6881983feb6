"""The table [reward]: scorers beside verifiers, their weights, and the refresh."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from stepmark.config import compose, run_config, validate
from stepmark.errors import ConfigError
from stepmark.rl_backends import AlgorithmConfig
from stepmark.store.run import to_toml

RUN = run_config(AlgorithmConfig)


def built(*sets: str) -> Any:
    return validate(RUN, compose(sets=["model.policy=p", *sets]).tree)


def test_without_scorers_the_table_is_as_it_was() -> None:
    reward = built().reward
    assert reward.scorers == ()
    assert [share.name for share in reward.verifiers] == ["math"]


def test_scorers_are_references_or_tables_with_settings_beside_or_below() -> None:
    for text in (
        '"arith-steps"',
        '["arith-steps"]',
        '[{name = "arith-steps", weight = 1.0}]',
    ):
        (share,) = built(f"reward.scorers={text}").reward.scorers
        assert (share.name, share.weight, dict(share.settings)) == ("arith-steps", 1.0, {})
    (share,) = built('reward.scorers=[{name = "a.py:f", splitter = "blank_line"}]').reward.scorers
    assert dict(share.settings) == {"splitter": "blank_line"}


def test_a_written_table_reads_back_equal() -> None:
    config = built(
        'reward.scorers=["arith-steps", {name = "a.py:f", weight = 0}]',
        "reward.outcome=0",
        "reward.process=0.5",
        "reward.refresh.labels=none",
        "reward.refresh.token_budget=1000",
    )
    assert config.reward.refresh.annotator is None
    assert validate(RUN, tomllib.loads(to_toml(config.model_dump()))) == config


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("reward.process=-1", "reward.process is -1"),
        ("reward.outcome=inf", "reward.outcome is inf"),
        ('reward.scorers=[{name="a", weight=-1}]', "reward.scorers.0.weight is -1"),
        ("reward.refresh.history_share=1", "reward.refresh.history_share is 1"),
        ("reward.refresh.row_budget=0", "reward.refresh.row_budget is 0"),
        ("reward.refresh.label=outcome", "Did you mean"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(sets: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(sets)
    assert said in str(caught.value)


def test_the_earlier_name_of_the_annotator_is_read_and_never_beside_the_new_one(tmp_path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('[reward.refresh]\nlabels = "arith-steps"\n')
    composed = compose([file])
    assert composed.tree == {"reward": {"refresh": {"annotator": "arith-steps"}}}
    assert composed.origin_of("reward.refresh.annotator") == str(file)
    file.write_text('[reward.refresh]\nlabels = "mc"\nannotator = "outcome"\n')
    with pytest.raises(ConfigError, match=r"Keep reward\.refresh\.annotator"):
        compose([file])


def test_a_budget_that_no_prefix_fits_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        built("reward.refresh.annotator=mc", "reward.refresh.token_budget=7")
    assert "reward.refresh.token_budget is 7 and reward.refresh.rollouts is 8" in str(caught.value)
    assert built("reward.refresh.token_budget=7").reward.refresh.token_budget == 7
