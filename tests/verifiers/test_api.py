"""The names that other people's code stands on, and what they refuse."""

from __future__ import annotations

import pytest

from stepmark.verifiers import (
    MathVerifier,
    Verdict,
    equal,
    extract,
    parse,
    register,
    registry,
    verify,
)


def test_the_gold_is_taken_by_name_only() -> None:
    with pytest.raises(TypeError):
        verify("4", "4")  # type: ignore[misc]


def test_a_registered_function_is_a_verifier_like_any_other() -> None:
    @register("api-short")
    def short(completion: str, gold: str, limit: int = 20) -> bool:
        answer = extract(completion).text
        return answer is not None and len(completion) <= limit and equal(gold, parse(answer))

    assert "api-short" in registry.names()
    assert verify("The answer is 1/2.", gold="0.5", verifier="api-short").correct
    assert not verify("The answer is 1/2.", gold="0.5", verifier="api-short?limit=5").correct
    assert verify(r"\boxed{2}", gold="2", verifier="all(api-short, format)").correct


def test_a_verifier_object_and_its_name_say_the_same() -> None:
    verdict = verify(r"\boxed{12}", gold=r"12\text{ cm}", verifier=MathVerifier(units="require"))
    assert isinstance(verdict, Verdict)
    by_name = verify(r"\boxed{12}", gold=r"12\text{ cm}", verifier="math?units=require")
    assert verdict == by_name


def test_columns_reach_verifiers_that_ask_for_them() -> None:
    def unit_is_cm(completion: str, unit: str) -> bool:
        return unit == "cm"

    assert verify("4", gold=None, verifier=unit_is_cm, columns={"unit": "cm"}).correct
    assert verify("4", gold=None, verifier=unit_is_cm).reason == "column_missing"
