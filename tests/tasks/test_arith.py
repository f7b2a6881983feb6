from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.tasks.arith import (
    Difficulty,
    bare_answer,
    check_steps,
    demonstrations,
    make_problem,
    problems,
    split_of,
)
from stepmark.tasks.arith_words import pieces, vocabulary

difficulties = st.builds(
    Difficulty,
    steps=st.tuples(st.integers(2, 3), st.integers(3, 6)),
    max_start=st.integers(10, 99),
    max_change=st.integers(10, 99),
    max_product=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    product_share=st.floats(0, 1),
)


def made(seed: int, difficulty: Difficulty | None = None):
    return make_problem(random.Random(seed), difficulty or Difficulty())


def moves(problem):
    return tuple(map(tuple, problem.meta["moves"]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), st.integers(2, 4), st.integers(8, 40))
def test_train_and_test_share_no_story_under_any_seeds(train_seed, test_seed, steps, largest):
    train = problems("train", size=60, seed=train_seed, steps=steps, max_start=largest)
    test = problems("test", size=30, seed=test_seed, steps=steps)
    assert all(split_of(moves(p)) == "train" for p in train)
    assert all(split_of(moves(p)) == "test" for p in test)
    assert not {moves(p) for p in train} & {moves(p) for p in test}
    assert not {p.text for p in train} & {p.text for p in test}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), difficulties)
def test_worked_solutions_are_true_and_of_the_asked_length(seed, difficulty):
    problem = made(seed, difficulty)
    lines = (problem.solution or "").split("\n")
    assert lines == problem.meta["steps"]
    assert check_steps(problem, lines) == (True,) * len(lines)
    assert lines[-1] == f"answer: {problem.gold}"
    assert difficulty.steps[0] <= len(lines) - 1 == problem.meta["n_steps"] <= difficulty.steps[1]
    assert int(problem.gold or -1) >= 0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), difficulties)
def test_texts_use_only_the_closed_vocabulary(seed, difficulty):
    problem = made(seed, difficulty)
    text = f"{problem.text}\n{problem.solution}"
    assert "".join(pieces(text)) == text
    assert set(pieces(text)) <= set(vocabulary())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 2), st.integers(1000, 2000))
def test_a_wrong_result_makes_its_line_and_what_builds_on_it_false(seed, at, off):
    problem = made(seed, Difficulty(steps=(3, 3), product_share=0.0))
    lines = list(problem.meta["steps"])
    left, _, result = lines[at].partition(" = ")
    lines[at] = f"{left} = {int(result) + off}"
    for later in range(at + 1, 3):
        _, sign, b, *_ = lines[later].split()
        value = int(lines[later - 1].split()[-1]) + (int(b) if sign == "+" else -int(b))
        lines[later] = f"{lines[later - 1].split()[-1]} {sign} {b} = {value}"
    lines[3] = f"answer: {lines[2].split()[-1]}"
    assert check_steps(problem, lines) == (True,) * at + (False,) * (4 - at)


def test_products_may_be_worked_out_early_and_swapped():
    problem = next(
        p for p in (made(s) for s in range(500)) if [m[2] > 0 for m in moves(p)] == [False, True]
    )
    product, final, answer = problem.meta["steps"]
    a, _, b, _, c = product.split()
    assert check_steps(problem, [f"{b} * {a} = {c}", final, answer]) == (True, True, True)
    assert check_steps(problem, [product, product, "so it is"]) == (True, False, False)


def test_content_depends_on_index_alone_and_not_on_the_size():
    assert problems("test", size=5) == problems("test", size=9)[:5]
    assert problems("test", size=5) != problems("test", size=5, seed=1)
    assert problems("train", size=3)[2].id == "arith/train/2"


def test_the_mixture_of_demonstrations_has_its_share_and_does_not_depend_on_order():
    rows = problems("train", size=1000)
    pairs = demonstrations(rows, 0.4, seed=3)
    worked = [text == problem.solution for problem, text in pairs]
    assert 0.35 < sum(worked) / len(worked) < 0.45
    assert all(text in (p.solution, bare_answer(p)) for p, text in pairs)
    assert demonstrations(rows[::-1], 0.4, seed=3) == pairs[::-1]
    assert all(text == bare_answer(p) for p, text in demonstrations(rows, 0.0))
    assert all(text == p.solution for p, text in demonstrations(rows, 1.0))


def test_a_share_of_worked_solutions_is_a_setting_of_the_task():
    styles = [p.meta["style"] for p in problems("train", size=400, worked_share=0.4)]
    assert 0.3 < styles.count("worked") / 400 < 0.5


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"steps": (3, 2)}, "steps"),
        ({"max_start": 1}, "max_start"),
        ({"max_change": 0}, "max_change"),
        ({"max_product": (1, 5)}, "max_product"),
        ({"product_share": 2.0}, "product_share"),
    ],
)
def test_a_difficulty_that_cannot_be_is_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        Difficulty(**change)


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="no split 'dev'"):
        problems("dev")
    with pytest.raises(ConfigError, match="size is 0"):
        problems("test", size=0)
    with pytest.raises(ConfigError, match="two whole numbers"):
        problems("test", size=1, steps=[1, 2, 3])
    with pytest.raises(ConfigError, match="no story"):
        problems("test", size=1, steps=1, max_start=2, max_change=1, product_share=0.0)
