"""The page of rules says what the code does: every row of its tables is run through `explain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepmark.types import Reason
from stepmark.verifiers import Explanation, explain

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verifier-rules.md"
LINE_BREAK = "↵"
VERDICTS = {True: "right", False: "wrong", None: "no score"}


def rows() -> Iterator[tuple[str, list[str]]]:
    """The cells of every row, with the head of the table's last column."""
    head: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not head:
            head = cells
        elif not set(line) <= set("|-: "):
            yield head[-1], [cell.replace("\\|", "|") for cell in cells]


def written(cell: str) -> str:
    return cell.strip("`").strip().replace(LINE_BREAK, "\n")


def boxed(answer: str) -> str:
    """The answer in a box, or after a phrase where its braces would break the box."""
    closed = answer.count("{") == answer.count("}")
    return f"\\boxed{{{answer}}}" if closed else f"The answer is {answer}"


def rule(shown: Explanation) -> str:
    """The rule that decided; the reason where answer or gold could not be used."""
    decided = shown.verdict.reason in (Reason.EQUAL, Reason.DIFFERENT)
    return shown.rule if decided else str(shown.verdict.reason)


ROWS = list(rows())


@pytest.mark.parametrize(
    "cells", [cells for head, cells in ROWS if head == "rule"], ids=lambda c: f"{c[0]} ~ {c[1]}"
)
def test_two_answers_are_judged_as_the_page_says(cells: list[str]) -> None:
    gold, answer, verdict, named = cells
    shown = explain(boxed(written(answer)), gold=written(gold))
    assert (VERDICTS[shown.verdict.correct], rule(shown)) == (verdict, named)


@pytest.mark.parametrize(
    ("head", "cells"),
    [row for row in ROWS if row[0].startswith("found by")],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_answer_is_found_as_the_page_says(head: str, cells: list[str]) -> None:
    completion, gold, verdict, method = cells
    strict = head == "found by (strict)"
    shown = explain(written(completion), gold=written(gold), strict=strict)
    assert (VERDICTS[shown.verdict.correct], shown.method) == (verdict, method)


def test_the_page_has_rows_of_every_kind() -> None:
    assert len(ROWS) >= 150
    assert {head for head, _ in ROWS} == {"rule", "found by", "found by (strict)"}
    assert {cells[2] for _, cells in ROWS} == set(VERDICTS.values())
