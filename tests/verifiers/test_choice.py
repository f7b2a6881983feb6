"""`choice`: an option is named by its letter or its text; letters in prose name nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.types import Reason, Status
from stepmark.verifiers import load_verifier, verify

loaded = cache(load_verifier)
CITIES = ["Paris", "London", r"$\frac{1}{2}$", "None of the above"]


def mark(completion: str, gold: str, choices: Any = None, settings: str = "") -> Any:
    columns = {} if choices is None else {"choices": choices}
    return verify(completion, gold=gold, verifier=loaded(f"choice?{settings}"), columns=columns)


@pytest.mark.parametrize(
    "completion",
    [
        "B",
        "(B)",
        "b",
        r"\boxed{B}",
        r"\boxed{\text{B}}",
        r"\boxed{\textbf{(B)}\ 12}",
        "Answer: B",
        "Answer: **B**",
        "#### B",
        "The answer is B.",
        "The correct option is (B).",
        "I would choose B.",
        "Option B is correct.",
        "B is the right answer; A is not.",
        "The answer is B, because A cannot be.",
        "So the final answer is B. I hope it is correct.",
        "The answer is\n\n(B)",
        "It cannot be A.\n\n**B**",
        "<think>The answer is A.</think> The answer is B.",
        "Answer: A.\nNo. Answer: B",
        "答案：B",
        "B不是 A",
        "B。不是 A",
        "La réponse est B non A",
        "It's not A because that has no sense, therefore I think it's B",
        "The answer is B not A",
        "It is not A; the answer is for sure B, it can't be A or C",
        "Answer: B\n" + r"as $\boxed{\Delta E}$ shows",
    ],
)
def test_an_option_is_named_by_its_letter(completion: str) -> None:
    assert mark(completion, "B").correct, mark(completion, "B")


@pytest.mark.parametrize(
    ("completion", "gold"),
    [
        ("A triangle has three sides.", "A"),
        ("The answer is A triangle", "A"),
        ("I think so", "I"),
        ("Answer: None of the above", "A"),
        ("Don't know", "D"),
        ("The answer is not B", "B"),
        ("The answer isn't B", "B"),
        ("neither A nor B", "A"),
        ("It is A triangle, and it's not B", "B"),
        ("It is a", "I"),
        ("The answer is A or B", "A"),
        ("The answer is A, B, C, D or E", "A"),
        ("The answer is B, or maybe C", "B"),
        ("The answer is A, B", "A"),
        (r"\boxed{A}\boxed{B}", "A"),
        ("ABCDE", "A"),
        ("<think>The answer is A.", "A"),
        ("", "A"),
    ],
)
def test_prose_and_hedges_name_nothing(completion: str, gold: str) -> None:
    assert mark(completion, gold).score == 0


@pytest.mark.parametrize(
    ("completion", "gold", "right"),
    [
        ("Paris", "A", True),
        (r"\boxed{\text{Paris}}", "A", True),
        ("The answer is Paris.", "A", True),
        ("A", "Paris", True),
        ("(A) Paris", "Paris", True),
        (r"\boxed{0.5}", "C", True),
        ("Answer: None of the above", "D", True),
        ("Answer: none of the above.", "D", True),
        ("(B) Paris", "A", False),
        ("(B) Paris", "B", False),
        ("Rome", "A", False),
        ("The capital of France is Paris", "A", False),
    ],
)
def test_an_option_is_named_by_its_text_where_the_data_has_it(
    completion: str, gold: str, right: bool
) -> None:
    assert mark(completion, gold, CITIES).score == right


@pytest.mark.parametrize(
    "choices",
    [
        ["Rome", "Paris"],
        ["A) Rome", "B) Paris"],
        {"label": ["A", "B"], "text": ["Rome", "Paris"]},
        {"A": "Rome", "B": "Paris"},
        '["Rome", "Paris"]',
        '{"A": "Rome", "B": "Paris"}',
    ],
)
def test_options_come_in_every_layout_of_the_hub(choices: Any) -> None:
    assert mark("Paris", "B", choices).correct
    assert mark("(B)", "Paris", choices).correct


def test_labels_may_be_digits() -> None:
    assert mark("The answer is 2.", "2", {"label": ["1", "2"], "text": ["ice", "fire"]}).correct
    assert mark("fire", "2", {"label": ["1", "2"], "text": ["ice", "fire"]}).correct


def test_a_gold_of_several_letters_wants_all_of_them() -> None:
    for completion in ("A and C", r"\boxed{C, A}", "Answer: AC"):
        assert mark(completion, "A, C").correct
    for completion in ("A", "A, B, C", "A or C"):
        assert mark(completion, "A, C").score == 0


def test_a_gold_that_counts_options_must_be_declared() -> None:
    assert mark("B", "1", ["Rome", "Paris"]).status is Status.ABSTAIN
    assert mark("B", "1", ["Rome", "Paris"], "gold_index=from_0").correct
    assert mark("A", "1", ["Rome", "Paris"], "gold_index=from_1").correct


def test_faults_of_the_data_have_no_score() -> None:
    assert mark("A", "Z").reason is Reason.GOLD_UNREADABLE
    assert mark("A", "C", ["Rome", "Paris"]).reason is Reason.GOLD_UNREADABLE
    assert mark("A", "").reason is Reason.GOLD_MISSING
    assert mark("A", "A", 3).reason == "options_unreadable"
    assert mark("A", "A", "Rome or Paris").reason == "options_unreadable"


def test_strict_takes_boxes_and_hashes_only() -> None:
    assert mark("The answer is B.", "B", settings="policy=strict").reason is Reason.NO_ANSWER
    assert mark(r"\boxed{B}", "B", settings="policy=strict").correct


@given(st.sampled_from("ABCDE"), st.sampled_from("ABCDE"), st.sampled_from(["{}", "({})", "{}."]))
def test_only_the_golds_letter_is_right(chosen: str, gold: str, shape: str) -> None:
    for frame in (r"\boxed{%s}", "The answer is %s", "So:\n\n%s"):
        assert mark(frame % shape.format(chosen), gold).score == (chosen == gold)


@given(st.text(max_size=80))
def test_random_text_is_a_verdict_and_never_an_error(text: str) -> None:
    for completion in (text, f"\\boxed{{{text}}}", f"The answer is {text}"):
        assert mark(completion, "B", CITIES).status is Status.OK
