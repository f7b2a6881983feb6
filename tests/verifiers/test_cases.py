r"""Golden cases by answer type: one file a family, each row an answer that is right or just wrong.

A row holds `gold`, `expected`, `kind`, `why`, and either a whole `completion` or a bare `answer`,
which is what stands in a box. About half the wrong ones are off by one small thing only: a sign, a
bracket, a digit, a unit, an order, a value too few or too many.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.types import Item, Problem, Reason
from stepmark.verifiers import MathVerifier

FAMILIES = ("numbers", "units", "structures", "expressions", "words", "extraction")
FOLDER = Path(__file__).parent / "cases"
ROWS = [
    {"family": family, **json.loads(line)}
    for family in FAMILIES
    for line in (FOLDER / f"{family}.jsonl").read_text(encoding="utf-8").splitlines()
]
KINDS = sorted({(row["family"], row["kind"]) for row in ROWS})


def completion(row: dict[str, object]) -> str:
    if "completion" in row:
        return str(row["completion"])
    return f"The answer is $\\boxed{{{row['answer']}}}$."


@pytest.mark.parametrize(("family", "kind"), KINDS, ids=["-".join(kind) for kind in KINDS])
def test_right_answers_are_paid_and_those_that_are_just_wrong_are_not(
    family: str, kind: str
) -> None:
    rows = [row for row in ROWS if (row["family"], row["kind"]) == (family, kind)]
    items = [Item(Problem(str(n), "", row["gold"]), completion(row)) for n, row in enumerate(rows)]
    verdicts = MathVerifier()(items)
    assert [
        (row["gold"], row.get("answer", row.get("completion")), row["why"], str(verdict.reason))
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.correct is not row["expected"]
    ] == []


def test_right_answers_are_not_wrong_when_gold_and_answer_change_places() -> None:
    """But for percent, which reads the gold; what only an answer may be written as abstains."""
    rows = [
        row
        for row in ROWS
        if row["expected"]
        and "answer" in row
        and not any(sign in row["gold"] + row["answer"] for sign in ("%", "percent"))
    ]
    items = [
        Item(Problem(str(n), "", row["answer"]), f"It is $\\boxed{{{row['gold']}}}$.")
        for n, row in enumerate(rows)
    ]
    verdicts = MathVerifier()(items)
    assert [
        (row["gold"], row["answer"], str(verdict.reason))
        for row, verdict in zip(rows, verdicts, strict=True)
        if not verdict.correct and verdict.reason is not Reason.GOLD_UNREADABLE
    ] == []
    assert sum(verdict.correct is None for verdict in verdicts) < len(rows) / 50


def test_every_family_has_right_and_wrong_answers_in_like_number() -> None:
    for family in FAMILIES:
        marks = [row["expected"] for row in ROWS if row["family"] == family]
        assert 0.3 <= sum(marks) / len(marks) <= 0.7, family


def test_no_case_is_there_twice() -> None:
    keys = [(row["gold"], completion(row)) for row in ROWS]
    assert len(keys) == len(set(keys))
