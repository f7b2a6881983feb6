"""A policy says which extraction rules are allowed; verdicts say which one fired."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from stepmark.errors import ConfigError
from stepmark.verifiers import LENIENT, STRICT, Policy, extract, verify

FIRED = {
    "boxed": r"so \boxed{7}",
    "hash": "so\n#### 7",
    "phrase": "The answer is 7.",
    "whole": "7",
    "last_maths": "We get $x = 7$ apples in the end, as I said",
    "last_number": "we get 7 apples in the end, as I said before",
}


@pytest.mark.parametrize("name", FIRED)
def test_every_rule_can_be_allowed_alone_and_forbidden_alone(name: str) -> None:
    assert extract(FIRED[name]).method == name
    only = Policy.of(name)
    assert extract(FIRED[name], policy=only).method == name
    without = dataclasses.replace(LENIENT, **{name: False})
    assert extract(FIRED[name], policy=without).method != name


def test_a_forbidden_rule_gives_way_to_the_next_one() -> None:
    both = r"The answer is 8. \boxed{7}"
    assert extract(both).text == "7"
    assert extract(both, policy=Policy(boxed=False)).text == "8"
    assert extract("#### 3\nThe answer is 4", policy=Policy(hash=False)).text == "4"


def test_strict_is_boxes_and_hashes() -> None:
    for name, text in FIRED.items():
        strict = extract(text, strict=True)
        assert strict == extract(text, policy=STRICT)
        assert strict.method == (name if name in ("boxed", "hash") else "none")


def test_every_rule_that_verdicts_name_is_in_the_policy() -> None:
    from typing import get_args

    from stepmark.verifiers.extract import Method

    names = {field.name for field in dataclasses.fields(Policy)}
    assert set(get_args(Method)) - names <= {"none", "gold_text", "option"}


@pytest.mark.parametrize("verifier", ["math", "exact", "numeric"])
def test_verifiers_take_a_policy_by_name(verifier: str) -> None:
    def correct(completion: str, policy: str) -> bool | None:
        return verify(completion, gold="7", verifier=f"{verifier}?policy={policy}").correct

    assert correct("The answer is 7.", "lenient")
    assert not correct("The answer is 7.", "strict")
    assert correct("The answer is 7.", "boxed+phrase")
    assert not correct("7", "boxed+phrase")


def test_policies_are_values() -> None:
    for policy in (LENIENT, STRICT, Policy(last_number=False)):
        assert Policy.of(str(policy)) == policy == pickle.loads(pickle.dumps(policy))


def test_an_unknown_rule_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'phrases'.*Did you mean 'phrase'"):
        Policy.of("boxed+phrases")
    with pytest.raises(ConfigError, match="Did you mean 'strict'"):
        verify("7", gold="7", verifier="math?policy=strickt")
