"""Votes of k samples: the exact expectation over subsets, against counting all of them."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError, UnknownNameError
from stepmark.statistics import (
    Drawn,
    accuracy_curve,
    best_at_k,
    doublings,
    expected_at_k,
    maj_at_k,
    pass_at_k,
    vote_at_k,
)

RIGHT = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.5}
"""The score of each class."""
VOTES = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c", "d"]), st.sampled_from([0.0, 0.1, 0.2, 0.7])),
    min_size=1,
    max_size=8,
)
Votes = list[tuple[str | None, float]]


def score_of(name: str | None) -> float:
    return 0.0 if name is None else RIGHT[name]


def elected(votes: Votes, *, weighted: bool) -> float:
    """The score of what these votes choose, written out."""
    sums: dict[str, float] = {}
    for name, weight in votes:
        if name is not None:
            sums[name] = sums.get(name, 0.0) + (weight if weighted else 1)
    most = max(sums.values(), default=0.0)
    tied = [RIGHT[name] for name, total in sums.items() if total > most - 1e-9]
    return sum(tied) / len(tied) if tied else 0.0


def over_subsets(votes: Votes, k: int, *, weighted: bool) -> float:
    found = [elected(list(some), weighted=weighted) for some in combinations(votes, k)]
    return sum(found) / len(found)


def split(votes: Votes) -> tuple[list[str | None], list[float], list[float]]:
    names = [name for name, _ in votes]
    return names, [score_of(name) for name in names], [weight for _, weight in votes]


@given(VOTES, st.integers(1, 8))
def test_a_majority_of_k_is_the_mean_over_all_subsets(votes: Votes, k: int) -> None:
    k = min(k, len(votes))
    names, scores, _ = split(votes)
    found = vote_at_k(names, scores, k)
    assert found.value == pytest.approx(over_subsets(votes, k, weighted=False))
    assert found.draws == 0


@given(VOTES, st.integers(1, 8))
def test_a_weighted_vote_of_k_is_the_mean_over_all_subsets(votes: Votes, k: int) -> None:
    k = min(k, len(votes))
    names, scores, weights = split(votes)
    found = vote_at_k(names, scores, k, weights)
    assert found.value == pytest.approx(over_subsets(votes, k, weighted=True))


@given(VOTES, st.randoms())
def test_votes_do_not_depend_on_the_order_of_samples(votes: Votes, rng: random.Random) -> None:
    shuffled = list(votes)
    rng.shuffle(shuffled)
    k = (len(votes) + 1) // 2
    for use in (False, True):
        (names, scores, weights), (names2, scores2, weights2) = split(votes), split(shuffled)
        one = vote_at_k(names, scores, k, weights if use else None)
        two = vote_at_k(names2, scores2, k, weights2 if use else None)
        assert one.value == pytest.approx(two.value, abs=1e-12)


@given(VOTES)
def test_equal_weights_vote_as_the_majority_does(votes: Votes) -> None:
    names, scores, _ = split(votes)
    for k in range(1, len(votes) + 1):
        equal = vote_at_k(names, scores, k, [0.4] * len(votes)).value
        assert equal == pytest.approx(vote_at_k(names, scores, k).value)


@given(VOTES)
def test_all_samples_vote_as_maj_at_k_says_and_one_is_the_mean(votes: Votes) -> None:
    names, scores, _ = split(votes)
    assert vote_at_k(names, scores, len(votes)).value == pytest.approx(maj_at_k(names, scores))
    assert vote_at_k(names, scores, 1).value == pytest.approx(sum(scores) / len(scores))


def test_a_majority_of_many_samples_is_exact_and_quick() -> None:
    rng = random.Random(0)
    names = [rng.choice("aaabbbcdefghijkl") for _ in range(64)]
    scores = [float(name == "a") for name in names]
    whole = vote_at_k(names, scores, 32)
    drawn = [
        maj_at_k([names[i] for i in some], [scores[i] for i in some])
        for some in (rng.sample(range(64), 32) for _ in range(4000))
    ]
    assert whole.draws == 0
    assert whole.value == pytest.approx(sum(drawn) / 4000, abs=0.04)


def test_subsets_too_many_to_count_are_drawn_by_the_seed_and_told() -> None:
    rng = random.Random(1)
    names = [rng.choice("abc") for _ in range(40)]
    scores, weights = [float(name == "a") for name in names], [rng.random() for _ in names]
    found = vote_at_k(names, scores, 20, weights, draws=500, seed=3)
    assert found.draws == 500
    assert found == vote_at_k(names, scores, 20, weights, draws=500, seed=3)
    places = list(range(40))
    rng.shuffle(places)
    again = vote_at_k(
        [names[i] for i in places], [scores[i] for i in places], 20, [weights[i] for i in places],
        draws=500, seed=3,
    )  # fmt: skip
    assert again.value == pytest.approx(found.value, abs=1e-12)


def test_a_sample_without_a_weight_counts_nothing() -> None:
    assert vote_at_k(["a", "b", "b"], [1, 0, 0], 3, [0.1, None, None]).value == 1.0
    assert vote_at_k([None, None], [0, 0], 2, [0.5, 0.5]).value == 0.0


@pytest.mark.parametrize(
    ("classes", "scores", "k", "weights", "said"),
    [
        (["a"], [1, 0], 1, None, "give one each"),
        (["a"], [1], 1, [0.1, 0.2], "2 weights"),
        (["a"], [1], 2, None, "k must lie between 1"),
        (["a"], [1], 0, None, "k must lie between 1"),
        (["a"], [1], 1, [-0.5], "at least 0"),
    ],
)
def test_what_cannot_vote_is_refused(
    classes: list[str], scores: list[float], k: int, weights: list[float] | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        vote_at_k(classes, scores, k, weights)


def test_a_curve_begins_at_the_mean_and_ends_at_all_samples() -> None:
    problems = [
        Drawn(
            [1, 0, 0, 1], ranks=[0.9, 0.1, 0.2, 0.8], classes="abba", weights=[0.9, 0.1, 0.2, 0.8]
        ),
        Drawn(
            [0, 0, 1, 0], ranks=[0.5, 0.5, 0.1, 0.5], classes="xyzx", weights=[0.5, 0.5, 0.1, 0.5]
        ),
    ]
    for method in ("mean", "pass", "best", "majority", "weighted"):
        points = accuracy_curve(problems, method)
        assert [point.k for point in points] == [1, 2, 4]
        assert points[0].mean == pytest.approx(0.375)
        for point in points:
            assert point.interval.low <= point.mean <= point.interval.high
    assert accuracy_curve(problems, "pass")[-1].mean == 1
    assert accuracy_curve(problems, "best", [2])[0].mean == pytest.approx(
        (
            best_at_k([1, 0, 0, 1], [0.9, 0.1, 0.2, 0.8], 2)
            + best_at_k([0, 0, 1, 0], [5, 5, 1, 5], 2)
        )
        / 2
    )
    assert accuracy_curve(problems, "pass", [3])[0].mean == pytest.approx(
        (pass_at_k(4, 2, 3) + pass_at_k(4, 1, 3)) / 2
    )


def test_doublings_end_in_the_number_itself() -> None:
    assert [doublings(n) for n in (1, 2, 8, 9)] == [(1,), (1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 9)]


def test_an_unknown_method_and_no_problems_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="majority"):
        expected_at_k(Drawn([1.0]), "majorty", 1)
    with pytest.raises(ConfigError, match="at least one problem"):
        accuracy_curve([], "mean")
