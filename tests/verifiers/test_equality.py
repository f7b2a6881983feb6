"""`equal`: a plain bool over the rules of `math`; a gold that cannot be used is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.types import Reason, Status
from stepmark.verifiers import GoldError, equal, parse, verify

ANSWERS = [
    "1/2",
    "0.5",
    r"\sqrt{12}",
    r"2\sqrt{3}",
    "x+1",
    "(1, 2)",
    r"\{2, 1\}",
    "B",
    "12 cm",
    "5",
]


@given(st.sampled_from(ANSWERS), st.sampled_from(ANSWERS))
def test_texts_and_trees_are_compared_as_math_does(gold: str, answer: str) -> None:
    expected = verify(f"\\boxed{{{answer}}}", gold=gold).correct
    assert equal(gold, answer) is expected
    assert equal(parse(gold), parse(answer)) is expected
    assert equal(gold, parse(answer)) is equal(answer, parse(gold))


def test_what_only_sympy_settles_is_settled() -> None:
    assert equal(r"\sin^2 x + \cos^2 x", "1")
    assert not equal(r"\sin x", r"\cos x")


def test_an_answer_that_cannot_be_used_is_false_and_a_gold_is_an_error() -> None:
    assert equal("5", r"\frac{1}{") is False
    assert equal("5", r"9^{9^{9^9}}") is False
    assert equal(r"\frac{1}{", r"\frac{1}{"), "the same text is the same answer"
    with pytest.raises(GoldError, match=r"The gold .* cannot be read.*Mend the gold"):
        equal(r"\frac{1}{", "5")
    with pytest.raises(GoldError, match="beyond the bounds"):
        equal("9" * 5000, "5")


def test_a_function_over_equal_abstains_where_the_gold_cannot_be_used() -> None:
    def mine(completion: str, gold: str) -> bool:
        return equal(gold, completion)

    verdict = verify("5", gold=r"\frac{1}{", verifier=mine)
    assert (verdict.status, verdict.reason) == (Status.ABSTAIN, Reason.GOLD_UNREADABLE)
    assert verify("5", gold="5.0", verifier=mine).correct


def test_settings_are_those_of_math() -> None:
    assert equal(r"12\text{ cm}", "12")
    assert not equal(r"12\text{ cm}", "12", units="require")
    with pytest.raises(ConfigError, match="units"):
        equal("1", "1", units="maybe")  # type: ignore[arg-type]
