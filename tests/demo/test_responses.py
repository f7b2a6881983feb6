"""The embedded responses are sound, varied, and marked as a person marks them."""

from __future__ import annotations

from collections import Counter

import pytest

from stepmark.demo import demo_page, load_responses, mark_responses
from stepmark.verifiers import load_verifier


def test_there_are_two_hundred_different_responses_to_sixty_problems() -> None:
    responses = load_responses()
    assert len(responses) == 200
    assert len({one.id for one in responses}) == 60
    assert len({(one.id, one.completion) for one in responses}) == 200
    assert len({one.name for one in responses}) == 200


def test_every_problem_has_one_text_one_gold_and_several_responses() -> None:
    responses = load_responses()
    facts = {(one.id, one.problem, one.gold) for one in responses}
    assert len(facts) == 60
    assert min(Counter(one.id for one in responses).values()) >= 2


def test_right_and_wrong_are_both_common() -> None:
    right = sum(one.right for one in load_responses())
    assert 80 <= right <= 140


@pytest.fixture(scope="module")
def result():
    return mark_responses([(name, load_verifier(name)) for name in ("math", "exact")])


def test_math_agrees_with_every_label(result) -> None:
    wrong = [
        (one.response.name, one.response.right, one.verdicts[0].reason, one.verdicts[0].extracted)
        for one in result.marked
        if one.verdicts[0].correct is not one.response.right
    ]
    assert wrong == []


def test_exact_misses_right_responses_and_takes_no_wrong_one(result) -> None:
    facts = result.to_json()["verifiers"]["exact"]
    assert facts["right_marked_wrong"] > 10
    assert facts["wrong_marked_right"] == 0


def test_the_response_that_is_explained_is_one_they_disagree_on(result) -> None:
    shown = result.shown()
    assert [verdict.correct for verdict in shown.verdicts] == [True, False]
    assert shown.response.right


def test_the_counts_add_up(result) -> None:
    assert sum(result.against_each_other().values()) == 200
    assert sum(result.against_labels(0).values()) == 200
    assert len(result.spread(10)) == 10
    assert len({one.response.id for one in result.spread(10)}) == 10


def test_the_page_holds_every_response(result) -> None:
    page = demo_page(result).html()
    assert page.count("<article") == 200
    assert "<script>document" not in page
