"""Rows for training: labels are counted before and after truncation, and nothing vanishes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import DataError
from stepmark.prm import EncodingSettings, StepEncoder
from stepmark.prm.batches import Batches
from stepmark.prm.data import (
    LabelRule,
    Tally,
    encode_rows,
    excluded_problems,
    is_held_out,
    read_rows,
    targets_of,
)
from stepmark.types import LabelledSteps, Problem


def row(text: str, steps: tuple[str, ...], labels: tuple[float | None, ...]) -> LabelledSteps:
    kind = "soft" if any(one not in (0, 1, None) for one in labels) else "hard"
    return LabelledSteps(Problem(text, text, None), steps, labels, kind=kind)


def encoder(tokenizer: Any, **settings: object) -> StepEncoder:
    return StepEncoder(tokenizer, EncodingSettings.model_validate(settings))


ROWS = [
    row("p", ("aa", "bb", "cc"), (1, 0, 1)),
    row("p", ("aa", "bb", "dd"), (None, None, 0)),
    row("q", ("e" * 40, "ff"), (1, 1)),
    row("q", ("gg",), (None,)),
]


def test_labels_are_counted_before_and_after_truncation_and_rows_dropped_with_a_reason(
    by_bytes: Any,
) -> None:
    found, counts = encode_rows(ROWS, encoder(by_bytes, max_tokens=30), LabelRule())
    assert len(found) == 2
    assert counts.given == Tally(right=4, wrong=2)
    assert counts.wanted == Tally(right=3, wrong=2), "what follows an error is masked"
    assert counts.kept == Tally(right=1, wrong=2)
    assert counts.dropped == Counter({"no label": 1, "no label within max_tokens": 1})
    assert sum(counts.dropped.values()) + len(found) == counts.rows


def test_what_no_label_needs_is_cut_and_the_rest_is_what_the_encoder_gave(by_bytes: Any) -> None:
    made = encoder(by_bytes)
    whole, _ = encode_rows(ROWS[:2], made, LabelRule(), whole=True)
    short, _ = encode_rows(ROWS[:2], made, LabelRule())
    for one, two, source in zip(whole, short, ROWS, strict=False):
        full = made.encode(source.problem, source.steps)
        assert (tuple(one.prompt), tuple(one.ids)) == (full.prompt_ids, full.ids)
        tokens = (*full.prompt_ids, *full.ids)
        assert (*two.prompt, *two.ids) == tokens[: two.length]
        ends = [len(two.prompt) + end for end in two.ends]
        assert ends == [len(one.prompt) + end for end in one.ends]
    assert short[0].length < whole[0].length, "the masked last step of the first row is cut"
    assert len(short[1].prompt) > len(whole[1].prompt), "unlabelled steps are part of the prompt"
    assert short[1].ends == (len("dd\n") - 1,)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (LabelRule(), (1, 0, None)),
        (LabelRule(after_error="wrong"), (1, 0, 0)),
        (LabelRule(after_error="keep"), (1, 0, 1)),
        (LabelRule(steps="last"), (None, None, None)),
        (LabelRule(steps="last", after_error="keep"), (None, None, 1)),
        (LabelRule(steps="last", after_error="wrong"), (None, None, 0)),
    ],
)
def test_labels_after_the_first_error_go_by_the_setting(
    rule: LabelRule, wanted: tuple[float | None, ...]
) -> None:
    assert targets_of(ROWS[0], rule) == wanted


def test_estimates_stay_estimates_unless_hard_labels_are_asked_for() -> None:
    soft = row("p", ("a", "b", "c"), (0.25, 0.0, 0.75))
    assert targets_of(soft, LabelRule()) == (0.25, 0.0, 0.75)
    assert targets_of(soft, LabelRule(labels="hard")) == (1, 0, None)
    assert targets_of(soft, LabelRule(labels="hard", hard_above=0.5)) == (0, None, None)


def test_first_errors_are_known_only_where_every_step_up_to_them_is_labelled(by_bytes: Any) -> None:
    rows = [*ROWS[:2], row("r", ("a", "b"), (1, 1)), row("r", ("a", "b", "c"), (1, 1, 0))]
    found, _ = encode_rows(rows, encoder(by_bytes), LabelRule())
    assert [one.first_error for one in found] == [1, None, -1, 2]
    last, _ = encode_rows(rows, encoder(by_bytes), LabelRule(steps="last"))
    assert all(one.first_error is None for one in last)


def test_the_first_error_is_that_of_the_targets_which_are_learnt(by_bytes: Any) -> None:
    soft = [row("p", ("a", "b", "c"), (0.9, 0.3, 0.2)), row("q", ("a", "b"), (0.75, 0.5))]
    made = encoder(by_bytes)
    assert [one.first_error for one in encode_rows(soft, made, LabelRule())[0]] == [1, -1]
    hard = LabelRule(labels="hard", hard_above=0.8)
    assert [one.first_error for one in encode_rows(soft, made, hard)[0]] == [1, 0]
    assert [one.first_error for one in soft] == [None, None], "estimates name no sure error"


def test_rows_of_one_step_tell_no_first_error_where_the_last_step_alone_is_learnt(
    by_bytes: Any,
) -> None:
    rows = [row("p", ("a",), (0,)), row("q", ("a",), (1,))]
    found, _ = encode_rows(rows, encoder(by_bytes), LabelRule(steps="last"))
    assert [one.first_error for one in found] == [None, None]


def test_all_rows_of_a_problem_are_on_one_side_however_its_blanks_are_set(tmp_path: Path) -> None:
    texts = [f"What is {n} + {n}?" for n in range(400)]
    lines = [
        {"problem": text.replace(" ", blank), "steps": ["a"], "labels": [1]}
        for text in texts
        for blank in (" ", "\n ")
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    found = read_rows([str(file)], held_out=0.2)
    sides = [{" ".join(r.problem.text.split()) for r in part} for part in found[:2]]
    assert not sides[0] & sides[1]
    assert 0.1 < len(sides[1]) / len(texts) < 0.3
    assert not any(is_held_out(text, 0.0) for text in texts)
    fewer = read_rows([str(file)], held_out=0.2, limit=100, held_out_limit=5)
    assert fewer.dropped["beyond data.limit"] == 700
    assert len(fewer.held_out) == 5
    again = read_rows([str(file)], held_out=0.2, limit=100, held_out_limit=5)
    assert [r.problem.text for r in again.train] == [r.problem.text for r in fewer.train]


def test_problems_of_other_files_are_excluded_and_counted(tmp_path: Path) -> None:
    rows, bench = tmp_path / "rows.jsonl", tmp_path / "bench.jsonl"
    lines = [{"problem": f"p {n}", "steps": ["a"], "labels": [1]} for n in range(5)]
    rows.write_text("\n".join(map(json.dumps, lines)))
    bench.write_text('{"problem": " p  3", "label": -1}\n{"question": {"problem": "p 4"}}\n')
    banned = list(excluded_problems([str(bench)]))
    found = read_rows([str(rows)], held_out=0.0, excluded=banned)
    assert [r.problem.text for r in found.train] == ["p 0", "p 1", "p 2"]
    assert found.dropped == Counter({"problem is in data.exclude": 2})
    bench.write_text('{"text": "p 3"}\n')
    with pytest.raises(DataError, match=r"line 1, has no problem"):
        list(excluded_problems([str(bench)]))


def test_a_file_without_rows_to_learn_from_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("")
    with pytest.raises(DataError, match="No row is left to learn from"):
        read_rows([str(file)], held_out=0.1)


def test_every_epoch_has_every_row_once_in_another_order() -> None:
    batches = Batches(10, 4, seed=0)
    assert batches.per_epoch == 3
    epochs = [[batches.of_step(1 + e * 3 + n).rows for n in range(3)] for e in range(2)]
    for epoch in epochs:
        assert sorted(row for rows in epoch for row in rows) == list(range(10))
    assert epochs[0] != epochs[1]
    assert Batches(10, 4, seed=0).of_step(5) == batches.of_step(5)
    assert Batches(10, 4, seed=1).of_step(5) != batches.of_step(5)
    assert (batches.steps(1.0), batches.steps(1.5), batches.steps(0.01)) == (3, 5, 1)


def test_balanced_epochs_have_all_of_the_rarer_kind_and_as_many_others() -> None:
    rare = [n % 5 == 0 for n in range(50)]
    batches = Batches(50, 8, seed=0, rare=rare)
    epochs = [[row for rows in batches.of_epoch(e) for row in rows] for e in range(2)]
    for rows in epochs:
        assert sum(rare[n] for n in rows) == 10
        assert len(set(rows)) == len(rows) == 20
    assert set(epochs[0]) != set(epochs[1]), "the others are drawn anew"


def test_rows_of_one_unit_come_in_one_batch() -> None:
    batches = Batches(30, 6, seed=0, unit=lambda n: n // 3)
    for rows in batches.of_epoch(0):
        assert {n // 3 for n in rows} == {n // 3 for n in rows if n % 3 == 0}
        assert len(rows) == 6


@pytest.mark.parametrize("unit", [None, lambda n: n // 3])
def test_the_batch_of_a_step_is_that_of_its_epoch_in_any_order_of_asking(unit: Any) -> None:
    rare = [n % 5 < 2 for n in range(30)]
    batches = Batches(30, 7, seed=0, rare=rare, unit=unit)
    wanted = [(e, rows) for e in range(6) for rows in batches.of_epoch(e)]
    asked = Batches(30, 7, seed=0, rare=rare, unit=unit)
    for step in (len(wanted), *range(1, len(wanted) + 1), 1):
        assert tuple(asked.of_step(step)) == wanted[step - 1]


def test_a_step_of_a_late_epoch_draws_its_epoch_alone() -> None:
    drawn: list[int] = []

    class Counted(Batches):
        def _drawn(self, epoch: int) -> list[list[int]]:
            drawn.append(epoch)
            return super()._drawn(epoch)

    batches = Counted(10, 5, seed=0)
    for step in range(1, 9):
        batches.of_step(step)
    assert drawn == [0, 1, 2, 3]


def test_labels_of_a_row_with_an_empty_step_are_not_said_to_be_lost_by_truncation(
    by_bytes: Any,
) -> None:
    odd = row("o", ("aa", " "), (1, 0))
    _, counts = encode_rows([*ROWS[:1], odd], encoder(by_bytes), LabelRule())
    assert counts.dropped == Counter({"empty step": 1})
    assert counts.wanted == counts.kept
