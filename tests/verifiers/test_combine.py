"""Combinations: one syntax everywhere, and whose fault decides when a part has no score."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.config import RewardTable
from stepmark.errors import ConfigError, UnknownNameError
from stepmark.registry import Reference
from stepmark.types import Item, Problem, Reason, Status, Verdict
from stepmark.verifiers import (
    AllOf,
    FirstOf,
    WeightedSum,
    load_verifier,
    remember,
    remembered,
    verify,
)


class Says:
    """A part that says what it was told to."""

    columns: frozenset[str] = frozenset()

    def __init__(self, name: str, said: float | Status) -> None:
        self.key, self.said, self.asked = f"{name}@1", said, 0

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        self.asked += len(items)
        if isinstance(self.said, Status):
            return [Verdict(None, self.said, f"{self.key} is silent") for _ in items]
        return [Verdict.marked(self.said, f"{self.key} says") for _ in items]


ITEM = Item(Problem("p", "", "3"), "3")
SAID = st.one_of(
    st.sampled_from([0.0, 1.0, Status.ABSTAIN, Status.ERROR]), st.floats(0, 1, width=16)
)
PARTS = st.lists(SAID, min_size=1, max_size=4).map(
    lambda said: [Says(f"p{i}", what) for i, what in enumerate(said)]
)


def scores_of(parts: Sequence[Says]) -> list[float | None]:
    return [None if isinstance(part.said, Status) else part.said for part in parts]


@given(PARTS)
def test_all_of_is_the_worst_part_and_a_zero_decides(parts: list[Says]) -> None:
    (verdict,) = AllOf(parts)([ITEM])
    scores = scores_of(parts)
    if 0 in scores:
        assert verdict.score == 0
    elif None in scores:
        assert verdict.score is None
    else:
        assert verdict.score == min(score for score in scores if score is not None)


@given(PARTS)
def test_first_of_is_the_first_score_and_later_parts_are_not_asked(parts: list[Says]) -> None:
    (verdict,) = FirstOf(parts)([ITEM])
    scores = scores_of(parts)
    at = next((i for i, score in enumerate(scores) if score is not None), None)
    assert verdict.score == (None if at is None else scores[at])
    assert [part.asked for part in parts] == [int(at is None or i <= at) for i in range(len(parts))]


@given(PARTS, st.data())
def test_a_sum_is_the_weighted_mean_and_misses_what_a_counted_part_misses(
    parts: list[Says], data: st.DataObject
) -> None:
    weights = [data.draw(st.sampled_from([0.0, 0.1, 1.0, 2.5])) for _ in parts]
    if not any(weights):
        return
    (verdict,) = WeightedSum(list(zip(parts, weights, strict=True)))([ITEM])
    counted = [(w, s) for w, s in zip(weights, scores_of(parts), strict=True) if w]
    if any(score is None for _, score in counted):
        assert verdict.score is None
    else:
        mean = sum(w * (s or 0) for w, s in counted) / sum(weights)
        assert verdict.score == pytest.approx(mean)
        assert verdict.correct == all(score == 1 for _, score in counted)


@given(PARTS)
def test_without_a_score_an_error_is_an_error_and_never_hidden_by_an_abstain(
    parts: list[Says],
) -> None:
    for kind in (AllOf, FirstOf, WeightedSum):
        (verdict,) = kind(parts)([ITEM])
        if verdict.score is None:
            failed = Status.ERROR in [part.said for part in parts]
            assert verdict.status is (Status.ERROR if failed else Status.ABSTAIN)


def test_the_detail_says_who_decided_and_what_each_part_said() -> None:
    verdict = verify(r"\boxed{4}? \boxed{3}", gold="3", verifier="all(math, format?one_box=true)")
    assert (verdict.score, verdict.reason, verdict.extracted) == (0, "many_boxes", "3")
    parts = verdict.detail["parts"]
    assert [part["score"] for part in parts.values()] == [1, 0]
    assert verdict.detail["decided_by"] == list(parts)[1]


def test_a_part_that_breaks_its_contract_makes_errors_and_not_an_exception() -> None:
    class Raising(Says):
        def __call__(self, items: Sequence[Item]) -> list[Verdict]:
            raise RuntimeError("boom")

    class Short(Says):
        def __call__(self, items: Sequence[Item]) -> list[Verdict]:
            return []

    for part in (Raising("raising", 1), Short("short", 1)):
        (verdict,) = AllOf([part, "math"])([ITEM])
        assert verdict.status is Status.ERROR
        assert "Error" in verdict.detail["traceback"]
        assert FirstOf([part, "math"])([ITEM])[0].correct


@pytest.mark.parametrize(
    "reference",
    [
        "sum(0.9*math, 0.1*format?steps=2)",
        "sum( 0.9 * math ,0.1*format?steps=2 )",
        {"name": "sum", "of": ["0.9*math", "0.1*format?steps=2"]},
        {
            "name": "sum",
            "of": [
                {"name": "math", "weight": 0.9},
                {"name": "format", "steps": 2, "weight": 0.1},
            ],
        },
        {"name": "sum", "of": {"math": 9, "format?steps=2": 1}},
        WeightedSum({"math": 0.9, "format?steps=2": 0.1}),
    ],
)
def test_every_way_to_write_a_sum_is_the_same_verifier(reference: object) -> None:
    made = load_verifier(reference)  # type: ignore[arg-type]
    assert made.key == load_verifier("sum(0.9*math, 0.1*format?steps=2)").key
    assert verify("3", gold="3", verifier=reference).score == pytest.approx(0.9)


def test_combinations_nest_and_carry_settings() -> None:
    reference = "first(choice, all(math?units=require&strict=true, sum(format, 2*exact)))"
    made = load_verifier(reference)
    assert str(Reference.parse(reference)) == reference
    assert load_verifier(str(Reference.parse(reference))).key == made.key
    assert pickle.loads(pickle.dumps(made)).key == made.key
    assert made.key.startswith("first-choice-all-math-sum-format-exact@1-")


def test_a_config_takes_the_same_text_and_the_same_table() -> None:
    text, table = (
        RewardTable.model_validate({"verifiers": [given]}).verifiers[0]
        for given in (
            "all(math?units=require, format)",
            {"name": "all", "of": ["math?units=require", "format"], "weight": 1.0},
        )
    )
    assert text.reference == table.reference
    assert load_verifier(text.reference).key == load_verifier(table.reference).key


def test_parts_may_be_functions_and_files_even_in_a_remembered_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checks.py").write_text(
        "def short(completion, unit='cm'):\n    return completion.endswith(unit)\n"
    )
    formula = "all(math, checks.py:short?unit=mm)"
    remember("mine", formula)
    assert formula in Path("stepmark.toml").read_text()
    assert str(tmp_path / "checks.py:short") in remembered(tmp_path)["mine"]
    monkeypatch.chdir("/")
    for reference in (remembered(tmp_path)["mine"], AllOf(["math", lambda completion: True])):
        assert verify("The answer is 3 mm", gold="3", verifier=reference).correct


def test_columns_are_those_of_all_parts() -> None:
    def levelled(completion: str, level: int) -> bool:
        return True

    assert AllOf(["choice?column=choices", levelled]).columns == {"choices", "level"}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("all", r"has no parts\. Write them in brackets"),
        ("all()", "has no parts"),
        ("all(math, math)", "math@2 twice"),
        ("all(math", "is not closed"),
        ("all(math)x", "After the bracket"),
        ("sum(0*math)", "Every weight"),
        ("sum(-1*math, format)", r"The weight of math.*-1\.0"),
        ("sum(math, format)?weights=3", "Its settings: of"),
    ],
)
def test_a_formula_that_means_nothing_is_refused(reference: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_verifier(reference)


def test_an_unknown_part_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'math'"):
        load_verifier("all(mth, format)")


def test_a_missing_gold_is_missing_from_a_sum_and_decided_by_a_zero() -> None:
    assert verify(r"\boxed{3}", gold=None, verifier="sum(math, format)").reason == (
        Reason.GOLD_MISSING
    )
    assert verify(r"\boxed{3}", gold=None, verifier="all(math, format)").score is None
    assert verify("3", gold=None, verifier="all(math, format)").score == 0
    assert verify(r"\boxed{3}", gold=None, verifier="first(math, format)").score == 1
