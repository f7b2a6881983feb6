"""Intervals and tests agree with scipy and with brute force, and hold at the edges."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.statistics import (
    maj_at_k,
    mcnemar_exact,
    mean_at_k,
    mean_interval,
    paired_means,
    paired_shares,
    pass_at_k,
    t_probability,
    t_quantile,
    wilson,
)

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
small = st.integers(0, 40)


@pytest.fixture(scope="module", autouse=True)
def _scipy_is_loaded() -> None:
    """Its first import takes longer than one example may."""
    pytest.importorskip("scipy.stats")


@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(case: tuple[int, int], level: float) -> None:
    from scipy.stats import binomtest

    k, n = case
    theirs = binomtest(k, n).proportion_ci(level, method="wilson")
    ours = wilson(k, n, level)
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert 0 <= ours.low <= k / n <= ours.high <= 1


def test_nothing_measured_says_nothing() -> None:
    assert wilson(0, 0) == (0, 1)


@given(st.integers(0, 120), st.integers(0, 120))
def test_mcnemar_is_the_two_sided_binomial_test(b: int, c: int) -> None:
    from scipy.stats import binomtest

    theirs = binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar_exact(b, c) == pytest.approx(theirs, rel=1e-9)
    assert mcnemar_exact(b, c) == mcnemar_exact(c, b)


@given(st.floats(0.01, 60), st.integers(1, 2000))
def test_t_probability_is_scipys(t: float, degrees: int) -> None:
    from scipy.stats import t as student

    assert t_probability(t, degrees) == pytest.approx(2 * student.sf(t, degrees), rel=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 5, 30, 1318])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_t_quantile_is_scipys(degrees: int, level: float) -> None:
    from scipy.stats import t as student

    assert t_quantile(level, degrees) == pytest.approx(student.ppf((1 + level) / 2, degrees))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=30))
def test_paired_means_is_scipys_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    from scipy.stats import ttest_rel

    first, second = zip(*pairs, strict=True)
    gaps = [x - y for x, y in pairs]
    if max(gaps) - min(gaps) < 1e-6:
        return
    ours, theirs = paired_means(first, second), ttest_rel(first, second)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert ours.interval == pytest.approx(tuple(theirs.confidence_interval()), abs=1e-9)


@given(small, small, small, small)
def test_paired_shares_holds_its_difference_and_turns_with_the_order(
    both: int, b: int, c: int, neither: int
) -> None:
    if both + b + c + neither == 0:
        with pytest.raises(ConfigError, match="no problems"):
            paired_shares(0, 0, 0, 0)
        return
    one, other = paired_shares(both, b, c, neither), paired_shares(both, c, b, neither)
    assert -1 <= one.interval.low <= one.difference <= one.interval.high <= 1
    assert one.interval == pytest.approx((-other.interval.high, -other.interval.low))
    assert one.p == other.p


def test_systems_that_agree_everywhere_still_have_an_interval() -> None:
    found = paired_shares(10, 0, 0, 6)
    assert (found.difference, found.p) == (0, 1)
    assert found.interval.low < 0 < found.interval.high


@given(counts, st.booleans())
def test_mean_at_1_is_the_share_with_the_interval_of_wilson(
    case: tuple[int, int], shuffled: bool
) -> None:
    k, n = case
    rows = [[1.0]] * k + [[0.0]] * (n - k)
    found = mean_at_k(rows[::-1] if shuffled else rows)
    assert found.mean == pytest.approx(k / n)
    assert found.interval == pytest.approx(wilson(k, n), abs=1e-9)


@given(counts, st.integers(2, 8))
def test_repeating_every_sample_adds_no_certainty(case: tuple[int, int], k: int) -> None:
    right, n = case
    rows = [[1.0]] * right + [[0.0]] * (n - right)
    once, repeated = mean_at_k(rows), mean_at_k([row * k for row in rows])
    assert repeated.interval == pytest.approx(once.interval, abs=1e-9)
    assert repeated.se == pytest.approx(once.se, nan_ok=True)


def test_the_clustered_error_is_that_of_the_means_of_problems() -> None:
    found = mean_at_k([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
    means = [0.25, 1.0, 0.5]
    deviation = math.sqrt(sum((m - sum(means) / 3) ** 2 for m in means) / 2)
    assert found.se == pytest.approx(deviation / math.sqrt(3))
    assert (found.problems, found.samples) == (3, 12)


def test_mean_at_k_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        mean_at_k([[1], []])
    with pytest.raises(ConfigError, match="outside"):
        mean_at_k([[1.5]])


def test_one_value_says_nothing_of_its_spread() -> None:
    assert mean_interval([3.0]) == (-math.inf, math.inf)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations([i < c for i in range(n)], k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_refuses_more_than_was_drawn() -> None:
    with pytest.raises(ConfigError, match="between 1 and n"):
        pass_at_k(4, 1, 8)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9), st.randoms())
def test_maj_at_k_does_not_depend_on_order(classes: list[str | None], random: object) -> None:
    order = list(range(len(classes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    scores = [float(name == "a") for name in classes]
    shuffled = maj_at_k([classes[i] for i in order], [scores[i] for i in order])
    assert shuffled == maj_at_k(classes, scores)


def test_a_level_outside_of_0_and_1_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.95"):
        wilson(1, 2, 95)
