"""PRM800K: neutral, alternatives, human completions, phases and finish reasons, each by option."""

from __future__ import annotations

from typing import Any

import pytest

from stepmark.errors import ConfigError
from stepmark.prm.formats import LeftOut, Rejected, load_format


def rated(text: str, rating: Any) -> dict[str, Any]:
    return {"text": text, "rating": rating, "flagged": False}


def step(*completions: Any, chosen: Any = None, human: Any = None) -> dict[str, Any]:
    return {
        "completions": list(completions) or None,
        "chosen_completion": chosen,
        "human_completion": human,
    }


def row(*steps: dict[str, Any], finish: str = "solution", **more: Any) -> dict[str, Any]:
    question = {"problem": "What is $2+3\\cdot 4$?", "ground_truth_answer": "14"}
    label = {"steps": list(steps), "finish_reason": finish, "total_time": 1}
    return {"question": question, "label": label, "generation": None, **more}


PHASE_1 = row(
    step(rated("a", 1), rated("b", -1), rated("c", 0), rated("d", None), chosen=0),
    step(rated("bad", -1), human={"text": "mended", "rating": None}),
    step(rated("e", 0), chosen=0),
    step(rated("wrong", -1), rated("wrong too", -1)),
    finish="give_up",
)
PHASE_2 = row(
    step(rated("a", 1), chosen=0), step(rated("b", -1)), finish="found_error", generation=3
)


def shown(found: list[Any]) -> list[tuple[str, tuple[float | None, ...]]]:
    return [(" ".join(one.steps), one.labels) for one in found]


def test_branches_hold_every_rating_once(read: Any) -> None:
    found = read("prm800k", PHASE_1)
    assert shown(found) == [
        ("a mended e", (1, 1, 1)),
        ("b", (0,)),
        ("c", (1,)),
        ("a bad", (None, 0)),
        ("a mended e wrong", (None, None, None, 0)),
        ("a mended e wrong too", (None, None, None, 0)),
    ]
    assert {one.problem.gold for one in found} == {"14"}
    assert found[0].meta == {"phase": 1, "finish": "give_up", "row": "trajectory"}
    assert (found[0].kind, found[0].origin) == ("hard", "human")


def test_prefix_rows_are_one_per_rated_completion_with_all_labels(read: Any) -> None:
    assert shown(read("prm800k", PHASE_1, alternatives="prefix")) == [
        ("a", (1,)),
        ("b", (0,)),
        ("c", (1,)),
        ("a bad", (1, 0)),
        ("a mended e", (1, 1, 1)),
        ("a mended e wrong", (1, 1, 1, 0)),
        ("a mended e wrong too", (1, 1, 1, 0)),
    ]


def test_a_trajectory_ends_with_the_only_completion_that_was_rejected(read: Any) -> None:
    assert shown(read("prm800k", PHASE_2)) == [("a b", (1, 0))]
    assert shown(read("prm800k", PHASE_2, alternatives="trajectory")) == [("a b", (1, 0))]
    assert shown(read("prm800k", PHASE_1, alternatives="trajectory")) == [("a mended e", (1, 1, 1))]


@pytest.mark.parametrize(("neutral", "label"), [("positive", 1), ("negative", 0), ("mask", None)])
def test_neutral_is_what_the_setting_says(read: Any, neutral: str, label: float | None) -> None:
    one = row(step(rated("a", 1), chosen=0), step(rated("b", 0), chosen=0))
    assert read("prm800k", one, neutral=neutral)[0].labels == (1, label)


def test_masked_neutral_alternatives_are_left_out_and_counted() -> None:
    found = list(load_format("prm800k?neutral=mask").read(PHASE_1))
    assert [one.reason for one in found if isinstance(one, LeftOut)] == ["neutral", "unrated"]


def test_a_trajectory_of_which_nothing_is_known_is_left_out() -> None:
    found = list(load_format("prm800k?neutral=mask").read(row(step(rated("a", 0), chosen=0))))
    assert found == [LeftOut("nothing_rated")]


def test_what_people_wrote_is_positive_or_masked(read: Any) -> None:
    one = row(step(rated("a", -1), human="mine"), step(rated("b", 1), chosen=0))
    assert shown(read("prm800k", one))[0] == ("mine b", (1, 1))
    assert shown(read("prm800k", one, human="mask"))[0] == ("mine b", (None, 1))
    judged = row(step(rated("a", -1), human=rated("mine", -1)))
    assert shown(read("prm800k", judged))[0] == ("mine", (0,))


def test_the_chosen_completion_wins_over_a_human_one(read: Any) -> None:
    both = row(step(rated("a", 1), chosen=0, human={"text": "mine", "rating": None}))
    assert shown(read("prm800k", both)) == [("a", (1,))]


def test_rows_from_a_table_write_nothing_as_null_and_indices_as_decimals(read: Any) -> None:
    nobody = {"text": None, "rating": None, "flagged": None}
    table = row(
        step(rated("a", 1.0), chosen=0.0, human=nobody), step(rated("b", -1.0), human=nobody)
    )
    table["question"]["pre_generated_steps"] = None
    [found] = read("prm800k", table)
    assert (found.steps, found.labels, found.meta["phase"]) == (("a", "b"), (1, 0), 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"is_quality_control_question": True}, "quality_control"),
        ({"is_initial_screening_question": True}, "screening"),
    ],
)
def test_questions_that_tested_the_labellers_are_left_out(
    read: Any, changed: dict[str, Any], reason: str
) -> None:
    assert list(load_format("prm800k").read(PHASE_2 | changed)) == [LeftOut(reason)]
    assert len(read("prm800k", PHASE_2 | changed, screening="keep")) == 1


def test_bad_problems_and_the_other_phase_are_left_out() -> None:
    bad = row(step(rated("a", 1), chosen=0), finish="bad_problem")
    assert list(load_format("prm800k").read(bad)) == [LeftOut("bad_problem")]
    assert list(load_format("prm800k?phase=2").read(PHASE_1)) == [LeftOut("other_phase")]
    assert list(load_format("prm800k?phase=1").read(PHASE_2)) == [LeftOut("other_phase")]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([step(rated("a", 2), chosen=0)], "rating"),
        ([step(rated("a", True), chosen=0)], "rating"),
        ([step(rated("a", "1"), chosen=0)], "rating"),
        ([step(rated("a", 0.5), chosen=0)], "rating"),
        ([step(rated("a", 1), chosen=1)], "chosen_out_of_range"),
        ([step(rated("a", 1), chosen=-1)], "chosen_out_of_range"),
        ([step(rated("a", 1), chosen=True)], "chosen_out_of_range"),
        ([step(rated("a", 1), chosen=0.5)], "chosen_out_of_range"),
        ([step(rated("a", 1), chosen=float("nan"))], "chosen_out_of_range"),
        ([step(rated("a", -1)), step(rated("b", 1), chosen=0)], "no_accepted_step"),
        ([step(rated(None, 1), chosen=0)], "column"),  # type: ignore[arg-type]
        ([step("a", chosen=0)], "column"),
        (["a step"], "column"),
        ([{"completions": "a", "chosen_completion": 0}], "column"),
    ],
)
def test_a_malformed_step_rejects_its_row(read: Any, steps: list[Any], reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("prm800k", row(*steps))
    assert why.value.reason == reason


def test_a_row_without_steps_is_rejected_and_not_lost(convert: Any) -> None:
    assert convert([row(), PHASE_2], "prm800k").found.rejects == {"no_steps": 1}


def test_another_row_is_no_row_of_prm800k(read: Any) -> None:
    with pytest.raises(Rejected, match=r"question\.problem"):
        read("prm800k", {"question": "What?", "label": 1})


def test_an_unknown_word_for_a_setting_is_refused() -> None:
    for wrong in ("neutral=zero", "alternatives=all", "phase=3", "human=no", "screening=yes"):
        with pytest.raises(ConfigError, match="It is one of"):
            load_format(f"prm800k?{wrong}")
