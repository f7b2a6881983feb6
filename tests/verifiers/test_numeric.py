"""`numeric`: the value counts, within the tolerance that was asked for, and nothing else does."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.types import Reason, Status
from stepmark.verifiers import NumericVerifier, load_verifier, verify

loaded = cache(load_verifier)


def score(answer: str, gold: str, settings: str = "") -> float | None:
    reference = f"numeric?{settings}" if settings else "numeric"
    return verify(f"\\boxed{{{answer}}}", gold=gold, verifier=loaded(reference)).score


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("0.5", r"\frac{1}{2}"),
        ("1.41421356", r"\sqrt{2}"),
        (r"\frac{\pi}{4}", "0.785398163"),
        ("1,000", "1000"),
        ("x = 12", "12"),
        (r"12\text{ cm}", "12"),
        ("12", r"12\text{ cm}"),
        ("1e3", "1000"),
        ("\\$5", "5"),
        ("28\\%", "0.28"),
        ("28\\%", "28"),
        ("28", "28\\%"),
    ],
)
def test_equal_values_are_right_however_written(answer: str, gold: str) -> None:
    assert score(answer, gold) == 1


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("0.51", "0.5"),
        ("10001", "10000"),
        ("0.28", "28"),
        ("28", "0.28"),
        ("0.5\\%", "0.5"),
        (r"12\text{ cm}", r"12\text{ s}"),
        ("-3", "3"),
    ],
)
def test_other_values_are_wrong(answer: str, gold: str) -> None:
    assert score(answer, gold) == 0


@pytest.mark.parametrize("answer", ["x+1", "1, 2", r"\{1\,;2\}", "i", r"\text{three or so}", "1/0"])
def test_what_is_no_number_is_unreadable_in_an_answer_and_abstains_in_a_gold(answer: str) -> None:
    verdict = verify(f"\\boxed{{{answer}}}", gold="3", verifier="numeric")
    assert (verdict.score, verdict.reason) == (0, Reason.UNREADABLE)
    assert str(verdict.detail["rule"]).startswith("not a number")
    verdict = verify("\\boxed{3}", gold=answer, verifier="numeric")
    assert (verdict.status, verdict.reason) == (Status.ABSTAIN, Reason.GOLD_UNREADABLE)


def test_beyond_the_bounds_is_the_completions_fault_and_in_a_gold_the_golds() -> None:
    tower = r"9^{9^{9^9}}"
    assert verify(f"\\boxed{{{tower}}}", gold="3", verifier="numeric").reason is Reason.TOO_LARGE
    assert verify("\\boxed{3}", gold=tower, verifier="numeric").status is Status.ABSTAIN


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=1000), st.integers(0, 200))
def test_the_tolerance_is_exact_at_its_edge(gold: Fraction, percent: int) -> None:
    answer = gold * (1 + Fraction(percent, 1000))
    spelled = f"{answer.numerator}/{answer.denominator}"
    assert score(spelled, str(gold), "rel_tol=0.1") == (percent <= 100 or gold == 0)


@given(st.integers(-1000, 1000), st.integers(-30, 30))
def test_the_absolute_tolerance_holds_on_both_sides(gold: int, off: int) -> None:
    assert score(f"{gold + off}", f"{gold}", "rel_tol=0&abs_tol=10") == (abs(off) <= 10)


@pytest.mark.parametrize(
    ("policy", "answer", "gold", "right"),
    [
        ("share", "28\\%", "0.28", True),
        ("share", "28\\%", "28", False),
        ("share", "28", "28\\%", False),
        ("number", "28\\%", "28", True),
        ("number", "28\\%", "0.28", False),
        ("gold", "28", "28\\%", True),
        ("gold", "1\\%", "1", False),
    ],
)
def test_the_percent_policy_says_what_the_sign_means(
    policy: str, answer: str, gold: str, right: bool
) -> None:
    assert score(answer, gold, f"percent={policy}") == right


def test_units_are_converted_where_pint_knows_them() -> None:
    pytest.importorskip("pint")
    assert score(r"0.12\text{ m}", r"12\text{ cm}") == 1
    assert score(r"12\text{ m}", r"12\text{ cm}") == 0
    assert score("12 m", r"12\text{ m}") == 1


def test_settings_are_checked() -> None:
    for wrong in ("rel_tol=-1", "abs_tol=inf", "rel_tol=nan", "percent=maybe", "policy=loose"):
        with pytest.raises(ConfigError, match=r"'numeric'|policy"):
            score("1", "1", wrong)
    with pytest.raises(ConfigError, match="Did you mean 'rel_tol'"):
        score("1", "1", "rel_tl=1")


def test_the_key_tells_settings_apart() -> None:
    keys = {NumericVerifier().key, NumericVerifier(rel_tol=0.1).key, NumericVerifier(abs_tol=1).key}
    assert len(keys) == 3
    assert NumericVerifier().key == "numeric@1"
