from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark import Problem
from stepmark.errors import ConfigError
from stepmark.tasks import problems_for_step, take


def made(name: str, size: int) -> tuple[Problem, ...]:
    return tuple(Problem(f"{name}/{i}", f"{i}?", str(i), task=name) for i in range(size))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 5), st.integers(1, 3))
def test_every_epoch_holds_every_problem_exactly_once(size, count, seed, epochs):
    problems = made("a", size)
    steps = -(-size * epochs // count)
    drawn = [
        problem.id
        for step in range(steps)
        for problem in problems_for_step({"a": problems}, None, seed, step, count)
    ]
    for epoch in range(epochs):
        assert sorted(drawn[epoch * size : (epoch + 1) * size]) == sorted(p.id for p in problems)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 5))
def test_no_step_holds_a_problem_twice_when_there_are_enough(count, extra, seed):
    problems = made("a", 3 * count + extra)
    for step in range(30):
        chosen = problems_for_step({"a": problems}, None, seed, step, count)
        assert len({problem.id for problem in chosen}) == count


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=4), st.integers(1, 8), st.integers(0, 1000))
def test_weights_are_met_over_any_stretch(weights, count, start):
    names = [f"t{i}" for i in range(len(weights))]
    by_task = {name: made(name, 5) for name in names}
    table = dict(zip(names, map(float, weights), strict=True))
    drawn = Counter(
        problem.task
        for step in range(start, start + 40)
        for problem in problems_for_step(by_task, table, 0, step, count)
    )
    for name in names:
        assert abs(drawn[name] - 40 * count * table[name] / sum(weights)) <= len(names)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=4))
def test_odd_weights_are_met_to_a_thousandth(weights):
    by_task = {f"t{i}": made(f"t{i}", 5) for i in range(len(weights))}
    table = dict(zip(by_task, weights, strict=True))
    drawn = Counter(p.task for p in problems_for_step(by_task, table, 0, 0, 3000))
    for name in by_task:
        assert drawn[name] / 3000 == pytest.approx(table[name] / sum(weights), abs=5e-3)


def test_a_step_does_not_depend_on_what_was_asked_before():
    by_task = {"a": made("a", 20), "b": made("b", 7)}
    forward = [problems_for_step(by_task, {"a": 2, "b": 1}, 1, step, 4) for step in range(12)]
    backward = [
        problems_for_step(by_task, {"a": 2, "b": 1}, 1, step, 4) for step in range(12)[::-1]
    ]
    assert forward == backward[::-1]
    again = problems_for_step(dict(reversed(by_task.items())), {"b": 1, "a": 2}, 1, 5, 4)
    assert again == forward[5]
    assert forward != [problems_for_step(by_task, {"a": 2, "b": 1}, 2, s, 4) for s in range(12)]


@pytest.mark.parametrize(
    ("by_task", "weights", "count"),
    [
        ({}, None, 1),
        ({"a": ()}, None, 1),
        ({"a": made("a", 2)}, {"b": 1.0}, 1),
        ({"a": made("a", 2)}, {"a": 0.0}, 1),
        ({"a": made("a", 2)}, {"a": float("nan")}, 1),
        ({"a": made("a", 2)}, None, 0),
    ],
)
def test_what_cannot_be_scheduled_is_refused(by_task, weights, count):
    with pytest.raises(ConfigError):
        problems_for_step(by_task, weights, 0, 0, count)


@given(st.permutations(range(30)), st.integers(1, 30), st.integers(1, 30))
def test_a_limit_ignores_the_order_and_grows_by_adding(order, small, large):
    problems = made("a", 30)
    small, large = sorted((small, large))
    shuffled = take([problems[i] for i in order], small)
    assert {p.id for p in shuffled} == {p.id for p in take(problems, small)}
    assert {p.id for p in shuffled} <= {p.id for p in take(problems, large)}
    assert len(shuffled) == small


def test_first_takes_the_head_and_a_limit_does_not():
    problems = made("a", 100)
    assert take(problems, first=3) == problems[:3]
    assert take(problems, 10) != problems[:10]
    assert take(problems) == problems
    assert take(problems, 1000) == problems
    with pytest.raises(ConfigError, match="give one"):
        take(problems, 1, 1)
    with pytest.raises(ConfigError, match="limit is 0"):
        take(problems, 0)
