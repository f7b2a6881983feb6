"""The arithmetic of the backends against the numeric oracle, case by case and name by name.

A check computes, from a case's inputs, our value of each convention that we offer, under the name
that the oracle gives it; the checks stand in oracle_*.py beside this file. The oracle is read in
place beside STEPMARK_DATA; a table of our own numbers (own_cases.json), each to be followed by
hand, goes through the same checks everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

HERE = Path(__file__).parent

CHECKS: dict[str, Callable[..., dict[str, Any]]] = {}
for _name in ("groups", "tokens", "completions", "schedule"):
    CHECKS |= run_path(str(HERE / f"oracle_{_name}.py"))["CHECKS"]

SKIPPED = [
    ("outcome_advantage/*", "max_rl*", "the estimator is not offered"),
    ("outcome_advantage/*", "nemo_rl_default*", "not the paper's; spikes on nearly equal rewards"),
    ("outcome_advantage/singleton_group", "verl_*", "a raw reward is no advantage; not to copy"),
    ("kl/clamp", "verl/OpenRLHF*", "d is clamped, not the value of k3 after it"),
    ("clip/adv*", "dual_clip*", "dual clip is not offered"),
    ("clip/adv*", "trl_delta3*", "a second bound on the ratio is not offered"),
    ("clip/adv*", "cispo*", "CISPO is not offered"),
    ("grpo_loss/micro_batches", "wrong_*", "the mistake that the case warns of"),
    ("grpo_loss/truncated_masked", "trl 'grpo'*", "masked completions leave the denominators too"),
    ("gae/trl_reward_on_pad", "*", "the score stands on the last sampled token; not to copy"),
    ("dpo/*", "robust*", "the loss is not offered"),
    ("dpo/*", "hinge*", "the loss is not offered"),
    ("reward_model/pairwise", "*", "reward models are trained elsewhere, not by a backend"),
    ("prm/step_bce", "*", "process reward models are trained elsewhere, not by a backend"),
    ("replay/fraction", "share_of_new*", "10 % is read as the share of the mixture"),
    ("mask/pad_equals_eos", "wrong_*", "the mistake that the case warns of"),
]
"""Every case and convention of the oracle that is not asserted: case, convention, why."""


def same(found: Any, expected: Any, case: str) -> bool:
    if isinstance(expected, dict):
        return all(same(found[key], value, case) for key, value in expected.items())
    if isinstance(expected, list):
        pairs_ = zip(found, expected, strict=True)
        return len(found) == len(expected) and all(same(f, e, case) for f, e in pairs_)
    if isinstance(expected, str):
        return found == expected
    # Log-probs are computed in float32, all else in float64; the file's gradients have nine digits.
    tolerance = 1e-6 if case.startswith("logprob/") else 2e-9
    return found == pytest.approx(expected, abs=tolerance, rel=1e-9)


def skipped(case: str, convention: str) -> bool:
    return any(
        fnmatchcase(case, cases) and fnmatchcase(convention, names) for cases, names, _ in SKIPPED
    )


def compare(name: str, cases: Mapping[str, Any]) -> None:
    """All conventions of a case that are not skipped, against ours; at least one."""
    inputs = {id_: case["inputs"] for id_, case in cases.items()}
    found = CHECKS[name](inputs[name], inputs)
    expected = cases[name]["expected"]
    asserted = [key for key in expected if not skipped(name, key)]
    assert asserted
    for key in asserted:
        assert same(found[key], expected[key], name), (key, found[key], expected[key])


OWN = {case["id"]: case for case in json.loads((HERE / "own_cases.json").read_text())}


@pytest.fixture(scope="module")
def cases(data: Path) -> dict[str, Any]:
    path = data.parent / "oracle" / "rl_oracle.json"
    if not path.is_file():
        pytest.skip("the oracle's file is not beside STEPMARK_DATA")
    return {case["id"]: case for case in json.loads(path.read_text())["cases"]}


@pytest.mark.parametrize("name", CHECKS)
def test_our_arithmetic_is_that_of_the_oracle(cases, name) -> None:
    compare(name, cases)


@pytest.mark.parametrize("name", OWN)
def test_our_arithmetic_is_that_of_our_own_table(name) -> None:
    compare(name, OWN)


def test_every_case_of_the_oracle_is_asserted_or_listed(cases) -> None:
    silent = [
        name
        for name, case in cases.items()
        if name not in CHECKS and not all(skipped(name, key) for key in case["expected"])
    ]
    assert not silent, f"neither asserted nor listed: {silent}"
    assert not set(CHECKS) - set(cases), "checks of cases that the oracle does not have"
    for names, convention, _ in SKIPPED:
        assert any(
            fnmatchcase(name, names) and fnmatchcase(key, convention)
            for name, case in cases.items()
            for key in case["expected"]
        ), f"nothing in the oracle is skipped by {names}: {convention}"
