"""TRL, ProcessBench and our own rows: lists of steps with lists, or an index, beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark import LabelledSteps, Problem
from stepmark.errors import DataError
from stepmark.prm import labelled_steps, load_format, write_labelled_steps
from stepmark.prm.data import LabelRule, targets_of
from stepmark.prm.formats import Rejected
from stepmark.prm.formats.rows import StepmarkRows, problem_id, row_id
from stepmark.prm.formats.trl import TrlStepwise

TRL = {"prompt": "What is 2+3*4?", "completions": ["3*4=12.", "2+12=15."], "labels": [True, False]}
BENCH = {
    "id": "gsm8k-0",
    "generator": "some model",
    "problem": "What is 2+3*4?",
    "steps": ["3*4=12.", "2+12=15.", "So 15."],
    "final_answer_correct": False,
    "label": 1,
}

texts = st.text(min_size=1, max_size=20)
hard_labels = st.sampled_from([0.0, 1.0])
soft_labels = st.floats(0, 1)


@st.composite
def solutions(draw: st.DrawFn) -> LabelledSteps:
    kind = draw(st.sampled_from(["hard", "soft"]))
    label = hard_labels if kind == "hard" else soft_labels
    pairs = draw(st.lists(st.tuples(texts, st.none() | label), min_size=1, max_size=5))
    text = draw(texts)
    return LabelledSteps(
        Problem(problem_id(text), text, draw(st.none() | texts)),
        tuple(step for step, _ in pairs),
        tuple(one for _, one in pairs),
        kind,  # type: ignore[arg-type]
        origin=draw(st.sampled_from(["", "human", "rollouts"])),
        source="made",
        final_correct=draw(st.sampled_from([None, True, False])),
        meta={"note": draw(st.integers())},
    )


@given(solutions())
def test_our_own_rows_come_back_as_they_were(labelled: LabelledSteps) -> None:
    [again] = StepmarkRows().read(StepmarkRows().write(labelled))
    assert again == labelled


@given(solutions())
def test_a_file_of_our_own_rows_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, labelled: LabelledSteps
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    assert write_labelled_steps(path, [labelled, labelled]) == 2
    assert list(labelled_steps(path)) == [labelled, labelled]


@given(
    st.one_of(
        st.lists(st.tuples(st.text(), st.booleans()), min_size=1),
        st.lists(st.tuples(st.text(), soft_labels), min_size=1),
    ),
    st.text(),
)
def test_rows_of_trl_come_back_as_they_were(pairs: list[tuple[str, Any]], prompt: str) -> None:
    row = {"prompt": prompt, "completions": [p[0] for p in pairs], "labels": [p[1] for p in pairs]}
    [found] = TrlStepwise().read(row)
    written = TrlStepwise().write(found)  # type: ignore[arg-type]
    assert written == row
    assert list(map(type, written["labels"])) == list(map(type, row["labels"]))


def test_soft_labels_of_trl_stay_soft(read: Any) -> None:
    [found] = read("trl", TRL | {"labels": [0.9, 0.4]})
    assert (found.labels, found.kind) == ((0.9, 0.4), "soft")
    [hard] = read("trl", TRL | {"labels": [1, 0]})
    assert (hard.labels, hard.kind) == ((1, 0), "hard")


def test_trl_gets_no_masked_label(read: Any) -> None:
    [bench] = read("processbench", BENCH)
    assert TrlStepwise().write(bench) == {
        "prompt": "What is 2+3*4?",
        "completions": ["3*4=12.", "2+12=15."],
        "labels": [True, False],
    }
    [between] = read("trl", TRL | {"labels": [None, True]})
    with pytest.raises(Rejected, match="masked_between"):
        TrlStepwise().write(between)
    [nothing] = read("trl", TRL | {"labels": [None, None]})
    with pytest.raises(Rejected, match="no_labels"):
        TrlStepwise().write(nothing)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"labels": [True]}, "label_count"),
        ({"labels": [True, False, True]}, "label_count"),
        ({"labels": [1, -1]}, "label_value"),
        ({"labels": [1.0, 1.01]}, "label_value"),
        ({"labels": [float("inf"), 0.0]}, "label_value"),
        ({"labels": ["true", "false"]}, "label_value"),
        ({"labels": "true"}, "column"),
        ({"completions": ["a", None]}, "column"),
        ({"completions": "a"}, "column"),
        ({"prompt": ["a"]}, "column"),
    ],
)
def test_a_malformed_row_of_trl_is_rejected(read: Any, changed: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("trl", TRL | changed)
    assert why.value.reason == reason


def test_ratings_in_a_row_of_trl_point_to_prm800k(read: Any) -> None:
    with pytest.raises(Rejected, match="prm800k"):
        read("trl", TRL | {"labels": [1, -1]})


def test_steps_after_the_first_error_are_unlabelled_and_not_wrong(read: Any) -> None:
    [found] = read("processbench", BENCH)
    assert found.labels == (1, 0, None)
    assert (found.first_error, found.final_correct, found.origin) == (1, False, "first_error")
    assert found.meta == {"id": "gsm8k-0", "generator": "some model"}
    [right] = read("processbench", BENCH | {"label": -1, "final_answer_correct": True})
    assert (right.labels, right.first_error) == ((1, 1, 1), -1)
    [first] = read("processbench", BENCH | {"label": 0})
    assert first.labels == (0, None, None)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"label": 3}, "error_out_of_range"),
        ({"label": -2}, "error_out_of_range"),
        ({"label": True}, "column"),
        ({"label": 1.0}, "column"),
        ({"label": "1"}, "column"),
        ({"label": None}, "column"),
        ({"final_answer_correct": "yes"}, "column"),
        ({"steps": "3*4=12."}, "column"),
        ({"problem": None}, "column"),
    ],
)
def test_a_malformed_row_of_processbench_is_rejected(read: Any, changed: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("processbench", BENCH | changed)
    assert why.value.reason == reason


BENCHED = {
    "modified_question": "What is 2+3*4?",
    "question": "What is 2 + 3 * 4?",
    "modified_process": ["3*4=11.", "2+11=13.", "So 13."],
    "error_steps": [1],
    "idx": "p1_0",
    "classification": "confidence",
}


def test_error_steps_of_prmbench_count_from_1(read: Any) -> None:
    [found] = read("prmbench", BENCHED)
    assert (found.labels, found.origin) == ((0, 1, 1), "planted")
    assert found.meta == {"idx": "p1_0", "classification": "confidence"}
    assert read("prmbench", BENCHED | {"error_steps": [3, 2]})[0].labels == (1, 0, 0)
    assert read("prmbench", BENCHED | {"error_steps": []})[0].labels == (1, 1, 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"error_steps": [4]}, "error_out_of_range"),
        ({"error_steps": [0]}, "error_out_of_range"),
        ({"error_steps": ["1"]}, "column"),
        ({"error_steps": [True]}, "column"),
        ({"error_steps": 1}, "column"),
        ({"modified_process": ["a", None]}, "column"),
    ],
)
def test_a_malformed_row_of_prmbench_is_rejected(read: Any, changed: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("prmbench", BENCHED | changed)
    assert why.value.reason == reason


def test_an_empty_step_of_prmbench_is_rejected_and_not_shifted(convert: Any) -> None:
    row = BENCHED | {"modified_process": ["3*4=11.", "", "So 13."], "error_steps": [3]}
    assert convert([row]).found.rejects == {"empty_step": 1}
    assert convert([row], repairs={"empty_steps": "drop"}).rows[0]["labels"] == [1, 0]


def test_three_columns_are_enough_for_a_row_of_ones_own(read: Any) -> None:
    [found] = read("stepmark", {"problem": "1+1?", "steps": ["2"], "labels": [0.5], "level": 3})
    assert (found.kind, found.labels, found.meta) == ("soft", (0.5,), {"level": 3})
    assert found.problem.id == problem_id("1+1?")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"labels": [0.5], "kind": "hard"}, "label_value"),
        ({"kind": "medium"}, "column"),
        ({"meta": 3}, "column"),
        ({"gold": 2}, "column"),
        ({"final_correct": 1}, "column"),
        ({"labels": [1, 0]}, "label_count"),
    ],
)
def test_a_malformed_row_of_our_own_is_rejected(read: Any, changed: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("stepmark", {"problem": "1+1?", "steps": ["2"], "labels": [1]} | changed)
    assert why.value.reason == reason


def test_a_file_that_is_not_ours_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"problem": "1+1?", "steps": ["2"], "labels": [1]}\n{"prompt": "1+1?"}\n')
    rows = labelled_steps(path)
    assert next(rows).steps == ("2",)
    with pytest.raises(DataError, match=r"line 2: column.*stepmark prm convert"):
        next(rows)
    with pytest.raises(DataError, match="There is no file"):
        next(labelled_steps(tmp_path / "none.jsonl"))


def test_ids_do_not_depend_on_blanks_and_labels() -> None:
    assert row_id("What is\n1?", ["a  b", "c"]) == row_id(" What is 1?", ["a b", "c "])
    assert row_id("a", ["b", "c"]) != row_id("a", ["b c"])


def test_labels_outside_0_to_1_make_no_labelled_steps() -> None:
    problem = Problem("p", "1+1?", "2")
    for label in (-1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="labels lie in"):
            LabelledSteps(problem, ("2",), (label,))


def test_every_registered_format_says_which_rows_are_its_own() -> None:
    assert load_format("trl").matches(TRL)
    assert not load_format("trl").matches(BENCH)
    assert load_format("processbench").matches(BENCH)


def test_labels_of_ones_and_zeros_are_hard_however_they_are_written(read: Any) -> None:
    row = {"problem": "2+3*4?", "steps": ["3*4=12", "2+12=15", "15"], "labels": [1.0, 0.0, 1.0]}
    [found] = read("stepmark", row)
    assert (found.kind, found.labels) == ("hard", (1, 0, 1))
    assert targets_of(found, LabelRule()) == (1, 0, None)
    [again] = read("stepmark", row | {"labels": [1.0, None, 0.5]})
    assert again.kind == "soft"
