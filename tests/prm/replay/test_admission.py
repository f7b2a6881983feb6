"""Admission to the replay buffer: what is refused, counted, replaced and capped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepmark.prm.replay import ReplayBuffer

Make = Callable[..., Any]


def test_rows_that_teach_nothing_are_refused_with_their_reason(tmp_path: Path, row: Make) -> None:
    report = ReplayBuffer(tmp_path).add(
        [
            row("1?"),
            row("2?", labels=[None, None]),
            row("3?", meta={"finish": "length"}),
            row("4?", meta={"truncated": True}),
            row("5?", meta={"finish": "stop"}),
            row("6?", steps=["a", " "]),
        ],
        0,
    )
    assert report.rejected == {"unlabelled": 1, "unfinished": 2, "empty step": 1}
    assert report.admitted == 2
    assert report.given == 6


def test_a_solution_that_is_there_is_refused_within_and_across_rounds(
    tmp_path: Path, row: Make
) -> None:
    buffer = ReplayBuffer(tmp_path)
    assert buffer.add([row("1?"), row("1?"), row(" 1? ")], 0).rejected == {"duplicate": 2}
    assert buffer.add([row("1?"), row("2?")], 1).rejected == {"duplicate": 1}
    assert sorted(entry.round for entry in buffer.entries()) == [0, 1]


def test_near_duplicates_differ_in_case_blanks_and_closing_points_only(
    tmp_path: Path, row: Make
) -> None:
    buffer = ReplayBuffer(tmp_path)
    rows = [
        row("Q?", ["3 + 4 = 7"], [1]),
        row("Q?", ["3+4=7."], [1]),
        row("Q?", ["3 - 4 = 7"], [1]),
    ]
    assert buffer.add(rows, 0).rejected == {"near-duplicate": 1}
    assert buffer.add([row("q?", ["3 + 4 = 7 ;"], [1])], 1).rejected == {"near-duplicate": 1}


def test_of_two_annotations_the_newer_counts_and_both_are_kept(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path, held_out=0.0)
    buffer.add([row("1?", labels=[1, 1]), row("2?")], 0)
    report = buffer.add([row("1?", labels=[1, 0])], 1)
    assert report.conflicts == 1
    assert report.admitted == 1
    found = {r.row.problem.text: r for r in buffer.records(buffer.entries())}
    assert found["1?"].row.labels == (1, 0)
    assert found["1?"].round == 1
    (line,) = map(json.loads, (tmp_path / "conflicts.jsonl").read_text().splitlines())
    assert line["kept"]["labels"] == [1, 0]
    assert line["replaced"]["labels"] == [1, 1]
    assert line["replaced"]["replay"]["round"] == 0


def test_of_two_annotations_in_one_round_the_later_counts(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    report = buffer.add([row("1?", labels=[1, 1]), row("1?", labels=[0, 1])], 0)
    assert (report.admitted, report.conflicts) == (1, 1)
    assert report.rejected == {"replaced in this round": 1}
    assert buffer.rows(buffer.entries())[0].labels == (0, 1)


def test_a_problem_gives_at_most_its_cap_and_mixed_labels_first(tmp_path: Path, row: Make) -> None:
    plain = [row("1?", [f"s {n}", "t"], [1, 1]) for n in range(6)]
    mixed = [row("1?", [f"m {n}", "t"], [1, 0]) for n in range(3)]
    buffer = ReplayBuffer(tmp_path, cap=4)
    report = buffer.add([*plain, *mixed, row("2?")], 0)
    assert report.rejected == {"beyond the cap of the problem": 5}
    kept = [r.labels for r in buffer.rows(buffer.entries()) if r.problem.text == "1?"]
    assert sorted(kept) == [(1, 0), (1, 0), (1, 0), (1, 1)]
    buffer.add([row("1?", [f"n {n}", "t"], [1, 1]) for n in range(6)], 1)
    assert sum(entry.round == 1 for entry in buffer.entries()) == 4


def test_every_given_row_is_counted_once(tmp_path: Path, row: Make, sums: Make) -> None:
    buffer = ReplayBuffer(tmp_path, cap=2)
    rows = [*sums(20, "no"), *sums(5, "no"), row("1?", labels=[None, None])]
    rows += [row("2?", [f"s {n}"], [1]) for n in range(5)]
    report = buffer.add(rows, 0)
    assert report.given == report.admitted + sum(report.rejected.values())
