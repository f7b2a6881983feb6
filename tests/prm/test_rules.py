"""The arithmetic rule: what it reads, what it accuses, what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark import Problem, StepItem, StepScorer
from stepmark.errors import UnknownNameError
from stepmark.prm import load_scorer
from stepmark.prm.rules import equation_holds, equations

PROBLEM = Problem("p", "How many?", "18")


def scores(*steps: str) -> tuple[float | None, ...]:
    return load_scorer("arithmetic").score([StepItem(PROBLEM, steps)])[0].scores


@pytest.mark.parametrize(
    "step",
    [
        "3 * 4 = 12",
        "She sells 16 - 3 = 13 eggs for $2 each, 13 * $2 = $26.",
        "<<16-3-4=9>>9 eggs are left.",
        r"\[ \frac{1}{2} \times 10 = 5 \text{ pens} \]",
        r"That is \(6 \text{ hours} \times \frac{2}{3} = 4 \text{ hours}\).",
        "1,200 + 34.5 = 1,234.5",
        "5 x 8 = 40",
        "10 / 3 = 3.33",
        "10 / 3 ≈ 3",
        r"\frac{61}{5} = 12 full pens, and one is left over",
        "20/100 = 20%",
        "2 + 3 = 4 + 1 = 5",
        "−3 + 5 = 2",
        "(3 + 4) * 2 = 14.",
        "2**3 = 8",
        "3^2 = 9",
        "x - 3 = 5, so x = 8",
        "2x + 3 = 11",
        "5! = 120",
        "3 apples + 4 = 7",
        "half of 20 - 4 = 6",
        "16 = 4",
        "1/0 = 5",
        "f(2) + 1 = 9",
        "He has 5 = 3 + 9 pens",
        "- 12 + 5 = 17",
        "3 + 4 = 7x",
        "20 + 30 = 20 (red) + 35 (blue)",
        "The answer is 18.",
        "",
    ],
)
def test_what_is_right_or_cannot_be_read_is_left_alone(step: str) -> None:
    assert scores(step) == (1.0,)


@pytest.mark.parametrize(
    "step",
    [
        "3 * 4 = 13",
        "so 12 + 5 = 16 pens are left",
        "<<16-3-4=8>>",
        r"\[ \frac{1}{2} \times 10 = 6 \]",
        "1,200 + 34.5 = 1,235.5",
        "5 × 8 = 45 \\text{ pens}",
        "10 / 3 = 3.5",
        "10 / 3 ≈ 5",
        "20/100 = 25%",
        "2 + 3 = 4 + 1 = 6",
        "$$75 - 80 = 5$$",
        "Right: 1 + 1 = 2.\nWrong: 2 + 2 = 5.",
    ],
)
def test_what_is_wrong_scores_nothing(step: str) -> None:
    assert scores(step) == (0.0,)


@given(st.integers(-999, 999), st.integers(-999, 999), st.sampled_from("+-*"), st.integers(1, 50))
def test_one_operation_is_right_exactly_when_it_is(a: int, b: int, sign: str, off: int) -> None:
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    right = f"({b})" if b < 0 else str(b)
    for shown, is_right in ((value, True), (value + off, False)):
        found = list(
            equations(f"We get {a if a >= 0 else f'({a})'} {sign} {right} = {shown} of them.")
        )
        assert [equation_holds(one) for one in found] == [is_right]


@given(st.text(max_size=80), st.text("0123456789+-*/=().,%x $\\{}frac<>~ ", max_size=80))
def test_any_text_has_a_score(words: str, signs: str) -> None:
    assert set(scores(words, signs, words + signs)) <= {0.0, 1.0}


def test_long_numbers_and_deep_brackets_are_not_read() -> None:
    assert scores("9" * 5000 + " + 1 = 2", "(" * 5000 + "1 + 1" + ")" * 5000 + " = 3") == (1.0, 1.0)


def test_the_rule_is_a_scorer_with_a_splitter() -> None:
    scorer = load_scorer("arithmetic?splitter=blank_line")
    assert isinstance(scorer, StepScorer)
    assert scorer.segment("a\nb\n\nc") == ((0, 5), (5, 6))
    assert scorer.key != load_scorer("arithmetic").key == "arithmetic@1"
    with pytest.raises(UnknownNameError, match="newline"):
        load_scorer("arithmetic?splitter=newlines")


def test_processbench_gsm8k_has_the_floor_that_docs_name(data: Path) -> None:
    rows = [
        json.loads(line)
        for line in (data / "processbench/processbench_gsm8k.jsonl").read_text().splitlines()
    ]
    found = load_scorer("arithmetic").score(
        [StepItem(Problem(row["id"], row["problem"], None), tuple(row["steps"])) for row in rows]
    )
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for row, given_ in zip(rows, found, strict=True):
        first = next((at for at, score in enumerate(given_.scores) if score == 0), -1)
        hits[row["label"] == -1].append(first == row["label"])
    assert (sum(hits[False]), len(hits[False])) == (12, 207)
    assert (sum(hits[True]), len(hits[True])) == (193, 193), "it accuses no right solution"
