"""Normal forms as people see them: equal for equal expressions, and never a crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.verifiers.normal import normal_form


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"\frac{3}{6}", "1/2"),
        ("0", "0"),
        (r"2x - x^2 + 1", "-x^2 + 2*x + 1"),
        (r"\frac{1}{x}", "(1) / (x)"),
        (r"3\sqrt{12} + \pi", "6*sqrt(3) + pi"),
        (r"\ln 4 + 2i", "2*i + 2*ln(2)"),
        (r"\sqrt[3]{2}", "2^(1/3)"),
        ("(1, 2)", None),
        ("12 cm", None),
        (r"\sin x", None),
        (r"\frac{", None),
        ("9^{9^{9^9}}", None),
    ],
)
def test_the_normal_form_is_readable_or_none(text: str, shown: str | None) -> None:
    assert normal_form(text) == shown


@given(st.integers(-99, 99), st.integers(1, 99), st.integers(1, 9))
def test_equal_fractions_have_one_normal_form(top: int, bottom: int, factor: int) -> None:
    plain, scaled = f"{top}/{bottom}", rf"\frac{{{top * factor}}}{{{bottom * factor}}}"
    assert normal_form(plain) == normal_form(scaled)


@given(st.text(max_size=60))
def test_any_text_has_a_normal_form_or_none(text: str) -> None:
    normal_form(text)
