"""Choosing among completions: by score, by votes, and which results are equal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import DataError
from stepmark.prm.search import answer_classes, best_of_n, majority, weighted_majority
from stepmark.statistics import vote_at_k
from stepmark.types import Item, Problem, Verdict
from stepmark.verifiers import from_function, load_verifier

SCORES = st.lists(
    st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=1, max_size=3), min_size=1, max_size=6
)
NAMES = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7)


@given(SCORES)
def test_the_best_of_n_has_no_better_one_and_none_as_good_before_it(
    scores: list[list[float]],
) -> None:
    chosen = best_of_n(scores, "min")
    least = [min(row) for row in scores]
    assert least[chosen] == max(least)
    assert max(least) not in least[:chosen]


def test_a_completion_without_a_whole_score_is_chosen_last() -> None:
    assert best_of_n([[None, 0.9], [0.1, 0.1]], "last") == 1
    assert best_of_n([[None], [None]], "mean") == 0
    with pytest.raises(DataError, match="no completions"):
        best_of_n([], "min")


@given(NAMES)
def test_a_vote_with_equal_weights_is_the_majority(names: list[str | None]) -> None:
    chosen = majority(names)
    assert chosen == weighted_majority(names, [0.3] * len(names))
    if chosen is None:
        assert set(names) == {None}
        return
    votes = [names.count(name) for name in names if name is not None]
    assert names.count(names[chosen]) == max(votes)
    scores = [float(name == names[chosen]) for name in names]
    assert vote_at_k(names, scores, len(names)).value >= 1 / len(set(names))


def test_weights_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="give one each"):
        weighted_majority(["a"], [])
    with pytest.raises(DataError, match="at least 0"):
        weighted_majority(["a"], [-0.1])


def marked(verifier: object, gold: str, *texts: str) -> list[tuple[Item, Verdict]]:
    items = [Item(Problem("p", "?", gold), text) for text in texts]
    found = load_verifier(verifier)  # type: ignore[arg-type]
    return list(zip(items, found(items), strict=True))


MATH = load_verifier("math")


def test_results_are_equal_as_the_verifier_sees_them_not_as_texts() -> None:
    row = marked(
        "math", "3/4", r"\boxed{0.75}", r"\boxed{\frac{3}{4}}", r"\boxed{1/3}",
        r"\boxed{\frac{1}{3}}", r"\boxed{2}", "I do not know.", r"\boxed{2.0}",
    )  # fmt: skip
    [names] = answer_classes(MATH, [row])
    assert names[0] == names[1] is not None
    assert names[2] == names[3] is not None
    assert names[4] == names[6] is not None
    assert names[5] is None
    assert len(set(names)) == 4


def test_classes_do_not_depend_on_the_order_of_completions() -> None:
    texts = [r"\boxed{2}", r"\boxed{\frac{4}{2}}", r"\boxed{7}", r"\boxed{7.0}", r"\boxed{5}", "?"]
    rng = random.Random(0)
    [names] = answer_classes(MATH, [marked("math", "5", *texts)])
    for _ in range(5):
        order = rng.sample(range(len(texts)), len(texts))
        [found] = answer_classes(MATH, [marked("math", "5", *(texts[at] for at in order))])
        assert found == [names[at] for at in order]


def test_problems_are_kept_apart() -> None:
    one = marked("math", "1", r"\boxed{3}", r"\boxed{3.0}")
    two = marked("math", "3", r"\boxed{3}", r"\boxed{1}")
    both = answer_classes(MATH, [one, two, []])
    assert both[0][0] == both[0][1]
    assert both[1][0] != both[1][1]
    assert both[2] == []


def equals(completion: str, gold: str) -> bool:
    return completion.rsplit(maxsplit=1)[-1] == gold


def test_a_function_that_extracts_nothing_has_the_results_that_are_found_in_the_text() -> None:
    verifier = from_function(equals)
    row = marked(verifier, "4", "It is 4", "So 4", "Or 5", "It is 5", "Hm 6")
    [names] = answer_classes(verifier, [row])
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert len(set(names)) == 3


def test_what_has_no_score_casts_no_vote() -> None:
    item = Item(Problem("p", "?", None), r"\boxed{3}")
    [names] = answer_classes(MATH, [[(item, Verdict.abstained("gold_missing"))]])
    assert names == [None]
