"""The dry run over golds: every one that nothing can be compared with, and no other."""

from __future__ import annotations

import pytest

from stepmark.evals import check_golds
from stepmark.types import Item, Problem, Status
from stepmark.verifiers import load_verifier

GOLDS = [
    ("a", "18"),
    ("b", r"\frac{"),
    ("c", None),
    ("d", "  "),
    ("e", "16 - 3 = 13.\n#### 13"),
    ("f", r"\frac{1}{0}"),
]


def test_bad_golds_are_those_on_which_the_verifier_abstains() -> None:
    math = load_verifier("math")
    found = check_golds(math, GOLDS)
    assert found is not None
    verdicts = math([Item(Problem(id, "", gold), r"\boxed{7}") for id, gold in GOLDS])
    abstained = [
        id for (id, _), v in zip(GOLDS, verdicts, strict=True) if v.status is Status.ABSTAIN
    ]
    assert [bad.id for bad in found.bad] == abstained == ["b", "c", "d", "f"]
    assert str(found).startswith("4 of 6 golds cannot be read")
    assert "and 1 more" in str(found)


def test_good_golds_are_counted_and_other_verifiers_are_not_asked() -> None:
    assert str(check_golds(load_verifier("math"), GOLDS[:1])) == "All 1 golds can be read."
    assert check_golds(load_verifier("exact"), GOLDS) is None


@pytest.mark.parametrize("strict", [True, False])
def test_what_was_read_is_remembered_for_the_marking(strict: bool) -> None:
    math = load_verifier(f"math?strict={str(strict).lower()}")
    check_golds(math, GOLDS)
    verdict = math([Item(Problem("a", "", "18"), "#### 18")])[0]
    assert verdict.correct
