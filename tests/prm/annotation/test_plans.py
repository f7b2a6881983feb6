"""Which prefixes are asked, and the labels that outcomes give: pure functions, no engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.prm.annotation import AnnotationSettings, StepReason, estimate_of
from stepmark.prm.annotation.estimates import StepEstimate
from stepmark.prm.annotation.plans import is_settled, plan_for

Outcomes = Sequence[bool | None]
outcomes = st.lists(st.sampled_from([True, False, None]), min_size=16, max_size=16)


def run(
    tables: Sequence[Outcomes],
    settings: AnnotationSettings,
    *,
    correct: bool | None = False,
    is_finished: bool = True,
    no_room: frozenset[int] = frozenset(),
) -> tuple[list[StepEstimate], dict[int, int]]:
    """The estimates of a solution whose prefix k has the outcomes tables[k - 1]; what was asked."""
    plan = plan_for(len(tables) + 1, correct, settings, is_finished=is_finished, no_room=no_room)
    asked: dict[int, int] = {}
    try:
        wanted = next(plan)
        while True:
            for prefix, upto in wanted.items():
                asked[prefix] = max(asked.get(prefix, 0), upto)
            wanted = plan.send({k: tables[k - 1][:n] for k, n in wanted.items()})
    except StopIteration as end:
        return end.value, asked


def labels(found: Sequence[StepEstimate]) -> list[float | None]:
    return [estimate.label for estimate in found]


def first_error(found: Sequence[StepEstimate]) -> int | None:
    return next((place for place, one in enumerate(found, 1) if one.label == 0), None)


def certain(steps: int, error: int) -> list[list[bool]]:
    """Outcomes of prefixes that all reach the answer before the error, and never from it on."""
    return [[prefix < error] * 16 for prefix in range(1, steps)]


def test_labels_are_those_that_are_counted_by_hand() -> None:
    tables = [
        [True, True, False, True],
        [False, False, False, True],
        [False, False, None, False],
        [None] * 4,
    ]
    hard, _ = run(tables, AnnotationSettings(rollouts=4, early_stop=False))
    assert labels(hard) == [1, 1, 0, None, 0]
    assert [(one.successes, one.n_rollouts) for one in hard] == [
        (3, 4),
        (1, 4),
        (0, 3),
        (0, 0),
        (0, 0),
    ]
    assert hard[3].reason == StepReason.NO_VERDICT
    soft, _ = run(tables, AnnotationSettings(rollouts=4, labels="soft"))
    assert labels(soft) == [0.75, 0.25, 0, None, 0]
    most, _ = run(tables, AnnotationSettings(rollouts=4, threshold=0.5))
    assert labels(most) == [1, 0, 0, None, 0]


@given(st.lists(outcomes, min_size=1, max_size=6), st.integers(1, 16), st.integers(1, 5))
def test_hard_labels_say_whether_soft_ones_are_above_zero(
    tables: list[list[bool | None]], n: int, chunk: int
) -> None:
    hard, _ = run(tables, AnnotationSettings(rollouts=n, chunk=chunk))
    soft, _ = run(tables, AnnotationSettings(rollouts=n, labels="soft"))
    for one, other in zip(hard, soft, strict=True):
        assert (one.label is None) == (other.label is None)
        assert one.label is None or bool(one.label) == (other.label != 0)


@given(
    st.lists(outcomes, min_size=1, max_size=6),
    st.integers(1, 16),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 2 / 3, 1.0]),
)
def test_early_stopping_never_changes_a_hard_label(
    tables: list[list[bool | None]], n: int, chunk: int, threshold: float
) -> None:
    settings = AnnotationSettings(rollouts=n, chunk=chunk, threshold=threshold)
    stopped, asked = run(tables, settings)
    whole, _ = run(tables, AnnotationSettings(rollouts=n, threshold=threshold, early_stop=False))
    assert labels(stopped) == labels(whole)
    assert all(count <= n for count in asked.values())


@given(outcomes, st.integers(0, 16), st.floats(0, 1))
def test_what_is_settled_stays_so_whatever_comes_next(
    outcomes: list[bool | None], seen: int, threshold: float
) -> None:
    if is_settled(outcomes[:seen], 16, threshold) and any(o is not None for o in outcomes[:seen]):
        early = estimate_of(outcomes[:seen], "hard", threshold).label
        assert estimate_of(outcomes, "hard", threshold).label == early


@given(st.integers(2, 40).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m))))
def test_binary_search_finds_the_error_of_exhaustive_annotation_in_logarithmically_many_prefixes(
    made: tuple[int, int],
) -> None:
    steps, error = made
    tables = certain(steps, error)
    found, asked = run(tables, AnnotationSettings(method="binary"))
    exhaustive, _ = run(tables, AnnotationSettings())
    assert first_error(found) == first_error(exhaustive) == error
    assert labels(found) == [1] * (error - 1) + [0] + [None] * (steps - error)
    assert len(asked) <= math.ceil(math.log2(steps))


@given(
    st.lists(st.lists(st.booleans(), min_size=16, max_size=16), min_size=1, max_size=11),
    st.sampled_from([0.0, 0.5]),
)
def test_the_border_of_a_binary_search_holds_after_the_recheck(
    tables: list[list[bool]], threshold: float
) -> None:
    settings = AnnotationSettings(method="binary", threshold=threshold)
    found, asked = run(tables, settings)
    error = first_error(found)
    assert error is not None
    known = {
        k: estimate_of(tables[k - 1], "hard", threshold).label for k in range(1, len(tables) + 1)
    }
    assert error == len(found) or known[error] == 0
    assert error == 1 or known[error - 1] == 1
    assert sum(asked.values()) <= settings.most_rollouts(len(found))


def test_an_unlucky_border_is_moved_by_the_recheck() -> None:
    tables = certain(6, 5)
    tables[2] = [False] * 8 + [True] * 8  # prefix 3 reaches the answer, and not in 8 roll-outs
    with_recheck, _ = run(tables, AnnotationSettings(method="binary"))
    without, _ = run(tables, AnnotationSettings(method="binary", recheck=1))
    assert (first_error(with_recheck), first_error(without)) == (5, 3)


def test_a_right_solution_is_its_own_witness_in_a_binary_search() -> None:
    found, asked = run(certain(4, 2), AnnotationSettings(method="binary"), correct=True)
    assert labels(found) == [1, 1, 1, 1]
    assert not asked
    assert [one.reason for one in found][:2] == [StepReason.REACHED] * 2


@pytest.mark.parametrize("method", ["mc", "binary"])
def test_a_step_that_was_cut_off_has_no_label(method: str) -> None:
    settings = AnnotationSettings(method=method)  # type: ignore[arg-type]
    found, _ = run(certain(4, 4), settings, is_finished=False)
    assert labels(found) == [1, 1, 1, None]
    assert found[-1].reason == StepReason.UNFINISHED


@pytest.mark.parametrize("method", ["mc", "binary"])
def test_a_prefix_without_room_has_no_label_and_says_so(method: str) -> None:
    settings = AnnotationSettings(method=method)  # type: ignore[arg-type]
    found, asked = run(certain(5, 9), settings, no_room=frozenset({3, 4}))
    assert not asked.keys() & {3, 4}
    assert labels(found)[2:4] == [None, None]
    assert StepReason.NO_ROOM in [one.reason for one in found[2:4]]


def test_a_search_ends_where_a_prefix_says_nothing() -> None:
    tables: list[list[bool | None]] = [
        [True] * 16,
        [True] * 16,
        [True] * 16,
        [None] * 16,
        [False] * 16,
    ]
    found, _ = run(tables, AnnotationSettings(method="binary"))
    assert labels(found)[:3] == [1, 1, 1]
    assert first_error(found) == 6 or labels(found)[3:5] == [None, None]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"method": "tree"}, "method is 'tree'"),
        ({"labels": "firm"}, "labels is 'firm'"),
        ({"rollouts": 0}, "n is 0"),
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"method": "binary", "labels": "soft"}, "Set labels to 'hard'"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(bad: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word.replace("(", r"\(")):
        AnnotationSettings(**bad)  # type: ignore[arg-type]
