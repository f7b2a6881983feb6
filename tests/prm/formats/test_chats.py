"""Qwen, RLHFlow, Skywork and MATH-APS: turns, tags, lines and prefixes."""

from __future__ import annotations

from typing import Any

import pytest

from stepmark.prm.formats import Rejected


def chat(*turns: tuple[str, str], key: str = "messages", **more: Any) -> dict[str, Any]:
    return {key: [{"role": role, "content": text} for role, text in turns], **more}


QWEN = chat(
    ("system", "Please reason step by step."),
    ("user", "What does <extra_0> mean in 2+3*4?"),
    ("assistant", "3*4=12.<extra_0>2+12=15.<extra_0>"),
    labels=[1, 0],
)
FLOW = chat(
    ("user", "What is -2+3*4? Step 1: 3*4=12."),
    ("assistant", "+"),
    ("user", "Step 2: -2+12=15."),
    ("assistant", " - "),
    key="conversations",
)


def test_a_tag_ends_a_step_and_is_text_in_the_problem(read: Any) -> None:
    [found] = read("qwen", QWEN)
    assert found.problem.text == "What does <extra_0> mean in 2+3*4?"
    assert (found.steps, found.labels) == (("3*4=12.", "2+12=15."), (1, 0))
    [soft] = read("qwen", {**QWEN, "labels": [0.9, 0.25]})
    assert (soft.labels, soft.kind) == ((0.9, 0.25), "soft")


def test_chats_without_labels_are_rejected_or_kept_for_scoring(convert: Any) -> None:
    bare = {key: value for key, value in QWEN.items() if key != "labels"}
    assert convert([bare]).found.rejects == {"no_labels": 1}
    kept = convert([bare], repairs={"unlabelled": "mask"})
    assert kept.rows[0]["labels"] == [None, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (QWEN | {"labels": [1]}, "label_count"),
        (QWEN | {"labels": [1, 2]}, "label_value"),
        (chat(("user", "Q"), ("assistant", "a<extra_0>b"), labels=[1]), "unlabelled_tail"),
        (chat(("assistant", "a<extra_0>"), labels=[1]), "turn_order"),
        (chat(("user", "Q"), ("user", "R"), ("assistant", "a<extra_0>")), "turn_order"),
        (chat(("user", "Q"), ("tool", "a<extra_0>")), "column"),
        ({"messages": "hello"}, "column"),
        ({"messages": [{"role": "user"}]}, "column"),
    ],
)
def test_a_malformed_chat_of_qwen_is_rejected(read: Any, row: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("qwen", row)
    assert why.value.reason == reason


def test_the_tail_of_a_chat_is_masked_or_dropped_when_asked_for(read: Any) -> None:
    tail = chat(("user", "Q"), ("assistant", "a<extra_0>b"), labels=[1])
    assert read("qwen", tail, tail="mask")[0].labels == (1, None)
    assert read("qwen", tail, tail="drop")[0].steps == ("a",)


def test_the_assistant_of_rlhflow_says_the_label(read: Any) -> None:
    [found] = read("rlhflow", FLOW)
    assert found.problem.text == "What is -2+3*4?"
    assert found.steps == ("Step 1: 3*4=12.", "Step 2: -2+12=15.")
    assert (found.labels, found.origin) == ((1, 0), "rollouts")


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([("user", "Q Step 1: a"), ("assistant", "+-")], "label_value"),
        ([("user", "Q Step 1: a"), ("assistant", "good")], "label_value"),
        ([("user", "Q a"), ("assistant", "+")], "step_mark"),
        ([("user", "Step 1: Q Step 1: a"), ("assistant", "+")], "step_mark"),
        ([("user", "Q Step 1: a"), ("user", "b"), ("assistant", "+")], "turn_order"),
        ([("assistant", "+"), ("user", "Q Step 1: a")], "turn_order"),
        ([("user", "Q Step 1: a"), ("assistant", "+"), ("user", "b")], "unlabelled_tail"),
        ([], "no_steps"),
    ],
)
def test_a_malformed_conversation_of_rlhflow_is_rejected(
    read: Any, turns: Any, reason: str
) -> None:
    with pytest.raises(Rejected) as why:
        read("rlhflow", chat(*turns))
    assert why.value.reason == reason


def test_an_unanswered_step_is_masked_or_dropped_when_asked_for(read: Any) -> None:
    row = chat(("user", "Q Step 1: a"), ("assistant", "+"), ("user", "b"))
    assert read("rlhflow", row, tail="mask")[0].labels == (1, None)
    assert read("rlhflow", row, tail="drop")[0].labels == (1,)


def test_blank_lines_of_skywork_are_no_steps(read: Any) -> None:
    row = {"problem": "Q", "response": "a\n\nb\n", "labels": [1, 0]}
    [found] = read("skywork", row)
    assert (found.steps, found.labels) == (("a", "b"), (1, 0))
    with pytest.raises(Rejected, match="label_count"):
        read("skywork", row | {"labels": [1]})


def test_labels_of_blank_lines_go_with_them_when_asked_for(convert: Any) -> None:
    row = {"problem": "Q", "response": "a\n\nb", "labels": [1, 1, 0]}
    assert convert([row]).found.rejects == {"empty_step": 1}
    mended = convert([row], repairs={"empty_steps": "drop"})
    assert (mended.rows[0]["steps"], mended.rows[0]["labels"]) == (["a", "b"], [1, 0])
    assert mended.manifest["repaired"] == {"empty_steps": 1}


def node(text: str, value: Any, *children: Any) -> dict[str, Any]:
    return {"text": text, "mc_value": value, "children": list(children)}


TREE = {
    "question": "Q",
    "final_answer": 14,
    "reasoning_steps": node("Q", 0.5, node("a", 1.0, node("b", 0.25)), node("c", 0.0)),
}
FLAT = {
    "question": "Q",
    "final_answer": "14",
    "reasoning_steps": [
        {"solution_prefix": prefix, "mc_value": value}
        for prefix, value in (("Q", 0.5), ("Q\n\na", 1.0), ("Q\n\na\n\nb", 0.25), ("Q\n\nc", 0.0))
    ],
}


@pytest.mark.parametrize("row", [TREE, FLAT], ids=["tree", "flat"])
def test_trees_and_lists_of_prefixes_give_the_same_ways_to_their_leaves(
    read: Any, row: Any
) -> None:
    found = read("math-aps", row)
    assert [(one.steps, one.labels) for one in found] == [(("a", "b"), (1, 0.25)), (("c",), (0,))]
    assert {(one.kind, one.problem.gold) for one in found} == {("soft", "14")}
    hard = read("math-aps", row, labels="hard")
    assert [(one.labels, one.kind) for one in hard] == [((1, 1), "hard"), ((0,), "hard")]


def test_a_number_that_goes_on_does_not_continue_a_prefix(read: Any) -> None:
    prefixes = [("Q x = 4", 0.0), ("Q x = 40", 1.0)]
    given = [{"solution_prefix": text, "mc_value": value} for text, value in prefixes]
    found = read("math-aps", {"question": "Q", "reasoning_steps": given})
    assert [(one.steps, one.labels) for one in found] == [(("x = 4",), (0,)), (("x = 40",), (1,))]


def test_a_prefix_with_two_estimates_is_mended_as_asked_for(read: Any) -> None:
    given = [*FLAT["reasoning_steps"], {"solution_prefix": "Q\n\nc", "mc_value": 0.5}]  # type: ignore[misc]
    row = FLAT | {"reasoning_steps": given}
    with pytest.raises(Rejected, match="conflicting_labels"):
        read("math-aps", row)
    assert read("math-aps", row, conflicts="mean")[1].labels == (0.25,)
    assert read("math-aps", row, conflicts="mask")[1].labels == (None,)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (node("another", 0.5, node("a", 1.0)), "prefix_without_problem"),
        ([{"solution_prefix": "another", "mc_value": 1.0}], "prefix_without_problem"),
        (node("Q", 0.5, node("a", 1.5)), "label_value"),
        (node("Q", 0.5, node("a", float("nan"))), "label_value"),
        (node("Q", 0.5, "a"), "column"),
        ({"text": "Q", "mc_value": 0.5, "children": "a"}, "column"),
        (["a"], "column"),
        ("a", "column"),
    ],
)
def test_a_malformed_row_of_math_aps_is_rejected(read: Any, given: Any, reason: str) -> None:
    with pytest.raises(Rejected) as why:
        read("math-aps", {"question": "Q", "reasoning_steps": given})
    assert why.value.reason == reason


def test_a_tree_may_be_deeper_than_python_recurses(read: Any) -> None:
    tree: dict[str, Any] = node("last", 0.0)
    for number in range(3000):
        tree = node(f"step {number}", 1.0, tree)
    [found] = read("math-aps", {"question": "Q", "reasoning_steps": node("Q", 0.5, tree)})
    assert len(found.steps) == 3001
