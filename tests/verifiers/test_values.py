"""Two expressions are one answer exactly when their values are: sixty digits at points decide.

The verifier never evaluates like this to say yes, so the two ways are independent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepmark.types import Status
from stepmark.verifiers import verify

Tree = Any
LEAVES = st.one_of(
    st.tuples(st.just("number"), st.integers(1, 40)),
    st.tuples(st.just("symbol"), st.sampled_from("xy")),
    st.just(("pi",)),
)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/"), inner, inner),
        st.tuples(st.just("power"), inner, st.sampled_from([2, 3, -1])),
        st.tuples(st.sampled_from(["sqrt", "sin", "cos", "tan", "ln", "exp"]), inner),
    ),
    max_leaves=5,
)


def latex(tree: Tree) -> str:
    match tree:
        case ("number" | "symbol", value):
            return str(value)
        case ("pi",):
            return r"\pi "
        case ("/", top, bottom):
            return rf"\frac{{{latex(top)}}}{{{latex(bottom)}}}"
        case ("*", left, right):
            return rf"({latex(left)})\cdot ({latex(right)})"
        case ("power", base, exponent):
            return f"({latex(base)})^{{{exponent}}}"
        case ("sqrt", inner):
            return rf"\sqrt{{{latex(inner)}}}"
        case ("exp", inner):
            return f"e^{{{latex(inner)}}}"
        case (name, inner):
            return rf"\{name}({latex(inner)})"
        case (sign, left, right):
            return f"({latex(left)}){sign}({latex(right)})"
    raise AssertionError(tree)


def value(tree: Tree, at: dict[str, Any]) -> Any:
    match tree:
        case ("number", number):
            return mpmath.mpf(number)
        case ("symbol", name):
            return at[name]
        case ("pi",):
            return +mpmath.pi
        case ("power", base, exponent):
            return value(base, at) ** exponent
        case (name, inner):
            number = value(inner, at)
            if not abs(number) < 50:  # the sine of a tower of powers takes mpmath for ever
                raise OverflowError(name)
            return getattr(mpmath, "log" if name == "ln" else name)(number)
    sign, a, b = tree[0], value(tree[1], at), value(tree[2], at)
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if sign == "/" else None}[sign]


def agree(left: Tree, right: Tree, seed: int) -> bool | None:
    """Whether the values agree at every one of five points; None if too few points have values."""
    points, seen = random.Random(seed), 0
    with mpmath.workdps(60):
        for _ in range(5):
            at = {name: mpmath.mpf(points.uniform(0.2, 3)) for name in "xy"}
            try:
                a, b = value(left, at), value(right, at)
            except (ZeroDivisionError, ValueError, OverflowError):
                continue
            if not (mpmath.isfinite(a) and mpmath.isfinite(b)) or max(abs(a), abs(b)) > 1e25:
                continue
            if abs(a - b) > mpmath.mpf(10) ** -20 * (1 + abs(a)):
                return False
            seen += 1
    return True if seen >= 3 else None


def places(tree: Tree, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    for n, part in enumerate(tree):
        if isinstance(part, tuple):
            yield from places(part, (*path, n))


def replaced(tree: Tree, path: tuple[int, ...], new: Tree) -> Tree:
    if not path:
        return new
    at = path[0]
    return (*tree[:at], replaced(tree[at], path[1:], new), *tree[at + 1 :])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree, and the tree with one part replaced: by another part or by the same, rewritten."""
    tree: Tree = draw(TREES)
    path = draw(st.sampled_from(list(places(tree))))
    part = tree
    for step in path:
        part = part[step]
    one, three = ("number", 1), ("number", 3)
    rewritten = [
        ("/", ("*", part, three), three),
        ("-", ("+", part, ("symbol", "x")), ("symbol", "x")),
        ("*", one, part),
        ("-", ("-", ("symbol", "y"), ("-", ("symbol", "y"), part)), ("-", one, one)),
    ]
    if part[0] in ("+", "*"):
        rewritten.append((part[0], part[2], part[1]))
    if part[0] == "tan":
        rewritten.append(("/", ("sin", part[1]), ("cos", part[1])))
    if part[0] == "power" and part[2] == 2:
        rewritten.append(("*", part[1], part[1]))
    return tree, replaced(tree, path, draw(st.one_of(LEAVES, st.sampled_from(rewritten))))


def check(pair: tuple[Tree, Tree], seed: int) -> None:
    left, right = pair
    expected = agree(left, right, seed)
    assume(expected is not None)
    verdict = verify(rf"\boxed{{{latex(right)}}}", gold=latex(left))
    assume(verdict.status is Status.OK and verdict.reason in ("equal", "different"))
    assert verdict.correct is expected, (latex(left), latex(right), verdict)


@settings(max_examples=60)
@given(pairs(), st.integers(0, 2**32))
def test_equal_is_what_has_equal_values(pair: tuple[Tree, Tree], seed: int) -> None:
    check(pair, seed)


@pytest.mark.slow
@settings(max_examples=4000)
@given(pairs(), st.integers(0, 2**32))
def test_equal_is_what_has_equal_values_for_many(pair: tuple[Tree, Tree], seed: int) -> None:
    check(pair, seed)
