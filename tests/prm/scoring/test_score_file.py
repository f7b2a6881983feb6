"""Files that are scored: rows of an earlier file, and scorers that divide texts wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import DataError, RunError, VerifierError
from stepmark.prm import load_scorer
from stepmark.prm.score_runs import score_file
from stepmark.prm.steps import Span, split_steps
from stepmark.store import read_rows
from stepmark.types import StepItem, StepScores

ROWS = [{"problem": f"{n} + 1?", "completion": f"{n} + 1 = {n + 1}\nso {n + 1}"} for n in range(6)]


def write(place: Path, rows: list[dict[str, Any]]) -> str:
    place.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(place)


@pytest.mark.parametrize("left", [ROWS[:4], [*ROWS[:5], {"problem": "5 + 1?"}]])
def test_scores_of_rows_that_are_no_more_are_not_taken_for_those_of_the_file(
    tmp_path: Path, left: list[dict[str, Any]]
) -> None:
    out, scorer = tmp_path / "out.jsonl", load_scorer("arithmetic")
    found = score_file(write(tmp_path / "in.jsonl", ROWS), out, scorer, "min")
    assert (found.solutions, found.fresh) == (6, 6)
    with pytest.raises(RunError, match=r"holds scores of another file(.|\n)*another --out"):
        score_file(write(tmp_path / "in.jsonl", left), out, scorer, "min")
    grown = write(tmp_path / "in.jsonl", [*ROWS, {"problem": "q", "completion": "1 + 1 = 3"}])
    again = score_file(grown, out, scorer, "min")
    assert (again.solutions, again.fresh) == (7, 1)
    assert [row["line"] for row in read_rows(out)] == [1, 2, 3, 4, 5, 6, 7]


class Divides:
    """Scores every step 1; divides as it is told."""

    key = "divides@1"

    def __init__(self, way: str) -> None:
        self.way = way

    def segment(self, text: str) -> tuple[Span, ...]:
        if self.way == "raises":
            raise ValueError("my own mistake")
        return ((0, 1),) if self.way == "part" else split_steps(text)

    def score(self, items: Any) -> list[StepScores]:
        given: list[StepItem] = list(items)
        return [StepScores((1.0,) * len(item.steps), self.key) for item in given]


def test_a_scorer_that_leaves_out_a_part_of_a_text_or_raises_is_refused_by_name(
    tmp_path: Path,
) -> None:
    file, out = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"'divides@1' divides a completion"):
        score_file(file, out, Divides("part"), "min")
    with pytest.raises(VerifierError, match=r"'divides@1' raised in segment(.|\n)*my own mistake"):
        score_file(file, out, Divides("raises"), "min")
    assert not out.exists(), "nothing was scored"
    assert score_file(file, out, Divides("lines"), "min").steps == 12
