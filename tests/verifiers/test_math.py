"""Golden cases of our own, the laws of equality, and whose fault a verdict is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.types import Item, Problem, Reason, Status
from stepmark.verifiers import MathVerifier, compare, explain, parse, verify

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases/ours.jsonl").read_text().splitlines()
]
DATA = os.environ.get("STEPMARK_DATA")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_golden(case: dict[str, object]) -> None:
    verdict = verify(str(case["completion"]), gold=str(case["gold"]))
    assert verdict.correct is case["expected"], verdict


@pytest.mark.parametrize(
    "case", [case for case in CASES if "one_way" not in case], ids=lambda case: case["why"]
)
def test_equality_is_symmetric(case: dict[str, object]) -> None:
    shown = explain(str(case["completion"]), gold=str(case["gold"]))
    if shown.completion_form is None or shown.gold_form is None or shown.extracted is None:
        return
    gold = str(shown.verdict.gold)
    assert bool(verify(f"\\boxed{{{gold}}}", gold=shown.extracted).correct) is case["expected"]


ATOMS = st.one_of(
    st.integers(-50, 50).map(str),
    st.sampled_from(["x", "y", r"\pi", r"\sqrt{3}", "i", "e", "0.25"]),
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-"), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
        st.tuples(inner, inner).map(lambda t: rf"\left({t[0]}\right)\cdot \left({t[1]}\right)"),
        st.tuples(inner, st.integers(1, 9)).map(lambda t: rf"\frac{{{t[0]}}}{{{t[1]}}}"),
        st.tuples(inner, st.integers(1, 3)).map(lambda t: f"({t[0]})^{t[1]}"),
    ),
    max_leaves=5,
)


@given(EXPRESSIONS)
@settings(deadline=None, max_examples=60)
def test_every_expression_equals_itself_rewritten(text: str) -> None:
    other = (
        text.replace(r"\left", "")
        .replace(r"\right", "")
        .replace(r"\frac", r"\dfrac")
        .replace("+", " + ")
    )
    assert compare(parse(f"({text}) + 0"), parse(other)).equal


@given(EXPRESSIONS, EXPRESSIONS)
@settings(deadline=None, max_examples=60)
def test_comparison_does_not_depend_on_the_order(left: str, right: str) -> None:
    a, b = compare(parse(left), parse(right)), compare(parse(right), parse(left))
    assert (a.equal, a.rule) == (b.equal, b.rule)


@given(EXPRESSIONS)
@settings(deadline=None, max_examples=60)
def test_one_more_is_never_equal(text: str) -> None:
    assert compare(parse(text), parse(f"({text}) + 1")).equal is False


@given(st.integers(0, 10**12), st.data())
@settings(deadline=None)
def test_one_digit_changed_is_never_equal(value: int, data: st.DataObject) -> None:
    digits = str(value)
    at = data.draw(st.integers(0, len(digits) - 1))
    digit = data.draw(st.sampled_from([d for d in "0123456789" if d != digits[at]]))
    changed = digits[:at] + digit + digits[at + 1 :]
    assert verify(f"\\boxed{{{changed}}}", gold=digits).correct is (int(changed) == value)


@given(st.integers(1, 10**6))
@settings(deadline=None)
def test_percent_never_makes_a_number_a_hundredth_of_itself(count: int) -> None:
    share = f"{count // 100}.{count % 100:02d}"
    for answer, gold in ((f"{count}", share), (share, f"{count}")):
        assert verify(f"\\boxed{{{answer}}}", gold=gold).correct is False
    assert verify(f"\\boxed{{{count}\\%}}", gold=share).correct
    assert verify(f"\\boxed{{{count}\\%}}", gold=f"{count}").correct is (count > 1)
    assert verify(f"\\boxed{{{share}\\%}}", gold=share).correct is (count > 100)


@given(st.fractions(max_denominator=999), st.sampled_from([" ", "", r"\,", r"\; "]))
@settings(deadline=None)
def test_a_fraction_is_equal_in_all_its_spellings(value: Fraction, space: str) -> None:
    top, bottom = abs(value.numerator), value.denominator
    sign = "-" if value < 0 else ""
    spellings = [
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"{sign}{space}\dfrac{{{space}{top}}}{{{bottom}{space}}}",
        rf"\frac{{{sign}{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        rf"\left({sign}{2 * top}/{2 * bottom}\right)",
    ]
    assert all(verify(f"\\boxed{{{text}}}", gold=spellings[0]).correct for text in spellings)


@given(st.text(max_size=80))
@example("\\boxed{\\frac}")
@example("\\boxed{\ud800}")
@settings(deadline=None)
def test_random_text_is_a_verdict_and_never_an_error(text: str) -> None:
    for completion in (text, f"\\boxed{{{text}}}", f"The answer is {text}"):
        assert verify(completion, gold="17").status is Status.OK
        assert verify("\\boxed{17}", gold=text).status is not Status.ERROR


@given(st.text(alphabet="0123456789+-*/^_{}()[]\\,.!%|xyie $fracsqrtboxed", max_size=60))
@settings(deadline=None, max_examples=200)
def test_near_maths_is_a_verdict_and_never_an_error(text: str) -> None:
    assert verify(f"\\boxed{{{text}}}", gold=r"x^2+\sqrt{3}").status is Status.OK


def test_what_the_completion_did_is_scored_and_what_the_gold_did_is_not() -> None:
    assert verify("I do not know.", gold="5").reason is Reason.NO_ANSWER
    assert verify(r"\boxed{(3-9) (5-15}", gold="-6").reason is Reason.UNREADABLE
    assert verify(r"\boxed{9^{9^{9^9}}}", gold="5").reason is Reason.TOO_LARGE
    assert verify(r"\boxed{5}", gold=None).reason is Reason.GOLD_MISSING
    assert verify(r"\boxed{5}", gold="  ").reason is Reason.GOLD_MISSING
    unreadable = verify(r"\boxed{5}", gold=r"\frac{1}{")
    assert (unreadable.status, unreadable.reason) == (Status.ABSTAIN, Reason.GOLD_UNREADABLE)
    assert verify(r"\boxed{2^{2^{2^{99}}}}", gold=r"2^{2^{2^{99}}}").correct, (
        "equal as text, however large"
    )


def test_strict_takes_boxes_and_hashes_only() -> None:
    strict = {"name": "math", "strict": True}
    assert verify("The answer is 4.", gold="4", verifier=strict).reason is Reason.NO_ANSWER
    assert verify("#### 4", gold="4", verifier=strict).correct


def test_required_units_must_be_there_and_be_the_golds() -> None:
    def correct(completion: str) -> bool | None:
        return verify(completion, gold=r"12\text{ cm}", verifier="math?units=require").correct

    assert correct(r"\boxed{12 cm}")
    assert correct(r"\boxed{12\text{ centimeters}}")
    assert correct(r"\boxed{12}") is False
    assert correct(r"\boxed{12 m}") is False
    assert verify(
        r"\boxed{12\text{ m}}", gold=r"12\text{ cm}", verifier="math?units=ignore"
    ).correct


def test_unknown_settings_and_values_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'units'"):
        MathVerifier(unit="strip")
    with pytest.raises(ConfigError, match="'strip', 'require', 'ignore'"):
        MathVerifier(units="maybe")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="above 0"):
        MathVerifier(timeout_s=0)


def test_the_key_tells_settings_apart() -> None:
    assert MathVerifier().key == "math@2"
    assert MathVerifier(units="require").key != MathVerifier(strict=True).key != "math@2"


def test_explain_shows_both_forms_and_the_rule() -> None:
    shown = explain(r"so \boxed{\frac12}", gold="0.5")
    assert (shown.extracted, shown.method, shown.rule) == (r"\frac12", "boxed", "normal form")
    assert shown.verdict.correct
    assert (shown.completion_form, shown.gold_form) == ("(1 / 2)", "1/2")


def test_a_number_is_marked_without_sympy_or_a_worker() -> None:
    code = (
        "import sys\nfrom stepmark.verifiers import verify\n"
        "assert verify('A: 18', gold='18').correct\n"
        "assert verify(r'\\boxed{\\sqrt{12}}', gold='2*sqrt(3)').correct\n"
        "print([m for m in ('sympy', 'mpmath', 'pebble', 'torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not DATA, reason="STEPMARK_DATA is not set")
def test_recorded_gsm8k_responses_are_marked_as_their_authors_did() -> None:
    lines = (Path(str(DATA)) / "recorded/responses_gsm8k_openai.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    items = [Item(Problem(row["id"], "", row["gold"]), row["response"]) for row in rows]
    verdicts = MathVerifier()(items)
    assert [
        row["id"] for row, v in zip(rows, verdicts, strict=True) if v.correct != row["is_correct"]
    ] == []


FLOORS = {
    "peer_tests": 0.95,
    "bug_reports": 0.98,
    "recorded_answers": 0.997,
    "hard_negatives": 1,
    "reflexive_golds": 1,
}


@pytest.mark.skipif(not DATA, reason="STEPMARK_DATA is not set")
@pytest.mark.parametrize("name", FLOORS)
def test_labelled_pairs_stay_above_the_floor_without_false_positives(name: str) -> None:
    lines = (Path(str(DATA)) / f"verify/{name}.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if not row.get("debatable")]
    items = [
        Item(
            Problem(row["id"], "", row["gold"]),
            row["answer"]
            if row["form"] == "response"
            else f"The answer is $\\boxed{{{row['answer']}}}$.",
        )
        for row in rows
    ]
    verdicts = MathVerifier()(items)
    right = [bool(v.correct) == row["expected"] for row, v in zip(rows, verdicts, strict=True)]
    paid = [
        row["id"]
        for row, v in zip(rows, verdicts, strict=True)
        if v.correct and not row["expected"]
    ]
    assert sum(right) / len(right) >= FLOORS[name]
    assert paid == []
