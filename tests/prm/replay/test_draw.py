"""The draw: a pure function, stratified to within a row, and the two readings of "10 %"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError, RunError
from stepmark.prm.formats import row_id
from stepmark.prm.replay import Balance, ReplayBuffer, draw
from stepmark.prm.replay.draw import quotas

Make = Callable[..., Any]


def ids(rows: Any) -> list[str]:
    return [row_id(row.problem.text, row.steps) for row in rows]


@pytest.fixture
def mixed(tmp_path: Path, row: Make) -> ReplayBuffer:
    """Two rounds of history in several strata, and a round of new rows."""
    buffer = ReplayBuffer(tmp_path, held_out=0.0)
    for number, count in ((0, 90), (1, 60), (2, 45)):
        rows = [
            row(
                f"{number}.{n}?",
                [f"{n} {k}" for k in range(1 + n % 5)],
                [1] * (n % 5) + [int(n % 3 > 0)],
                source="trl" if n % 7 else "prm800k",
            )
            for n in range(count)
        ]
        buffer.add(rows, number)
    return buffer


@pytest.fixture
def large(tmp_path: Path, row: Make) -> ReplayBuffer:
    """Rows enough for the numbers of the specification."""
    buffer = ReplayBuffer(tmp_path, held_out=0.0)
    for number, count in ((0, 900), (1, 6000)):
        rows = [row(f"{number}.{n}?", ["a"], [n % 2]) for n in range(count)]
        buffer.add(rows, number)
    return buffer


def test_six_thousand_new_rows_get_667_earlier_ones(large: ReplayBuffer) -> None:
    found = draw(large, 1)
    assert (len(found.new), len(found.replay)) == (6000, 667)
    assert (found.by_mixture, found.by_history, found.history) == (667, 90, 900)
    assert abs(667 / 6667 - 0.1) < 1e-4
    other = draw(large, 1, reading="history")
    assert len(other.replay) == 90
    assert (other.by_mixture, other.by_history) == (667, 90)


def test_no_more_is_drawn_than_there_is(mixed: ReplayBuffer) -> None:
    found = draw(mixed, 2, history_share=0.9, balance=None)
    assert len(found.replay) == found.history == 150
    assert found.by_mixture == 405
    whole = draw(mixed, 2, history_share=1.0, reading="history", balance=None)
    assert sorted(ids(whole.replay)) == sorted(ids(found.replay))
    assert len(draw(mixed, 2, history_share=0.0).replay) == 0


def test_equal_buffers_and_seeds_draw_equal_rows(mixed: ReplayBuffer, tmp_path: Path) -> None:
    first = draw(mixed, 2, seed=3)
    assert draw(ReplayBuffer(mixed.folder), 2, seed=3) == first
    assert len(set(ids(first.replay))) == len(first.replay)
    assert ids(draw(mixed, 2, seed=4).replay) != ids(first.replay)


def test_a_later_round_does_not_change_an_earlier_draw(mixed: ReplayBuffer, row: Make) -> None:
    first = draw(mixed, 1, seed=3)
    mixed.add([row("later?", ["x"], [0]), row("0.3?", ["3 0", "3 1", "3 2", "3 3"], [1] * 4)], 3)
    assert draw(mixed, 1, seed=3) == first


def test_each_stratum_gives_its_share_to_within_a_row(mixed: ReplayBuffer) -> None:
    found = draw(mixed, 2, history_share=0.5, balance=None)
    share = len(found.replay) / found.history
    assert sum(count.drawn for count in found.strata) == len(found.replay) == 45
    assert sum(count.there for count in found.strata) == found.history
    assert len(found.strata) > 10
    assert all(abs(count.drawn - share * count.there) < 1 for count in found.strata)
    entries = {entry.id: entry for entry in mixed.entries()}
    drawn = Counter(entries[one].stratum for one in ids(found.replay))
    assert drawn == Counter({count.stratum: count.drawn for count in found.strata if count.drawn})


def test_weights_prefer_late_rounds_or_make_rounds_equal(mixed: ReplayBuffer) -> None:
    def by_round(weight: Any) -> Counter[int]:
        found = draw(mixed, 2, history_share=0.5, weight=weight, balance=None)
        return Counter(
            {n: sum(c.drawn for c in found.strata if c.stratum.round == n) for n in (0, 1)}
        )

    plain, recent, equal = map(by_round, ("proportional", "recency", "uniform-round"))
    assert abs(plain[0] - 27) <= 3
    assert recent[1] > plain[1]
    assert abs(recent[0] / recent[1] - 0.5 * 90 / 60) < 0.25
    assert abs(equal[0] - equal[1]) <= 3


def test_class_balance_takes_new_rows_only(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path, held_out=0.0)
    buffer.add([row(f"old {n}?", ["a"], [0]) for n in range(50)], 0)
    buffer.add([row(f"new {n}?", ["a"], [int(n >= 90)]) for n in range(100)], 1)
    found = draw(buffer, 1, history_share=0.5)
    new_right = sum(r.labels == (1,) for r in found.new)
    assert new_right == 10
    assert len(found.replay) == 28
    assert len(found.new) < 28
    assert found.admitted == 100
    free = draw(buffer, 1, history_share=0.5, balance=None)
    assert len(free.new) == 100
    loose = draw(buffer, 1, history_share=0.1)
    assert 0.35 <= loose.has_error <= 0.65


def test_a_mixture_within_bounds_loses_nothing(large: ReplayBuffer) -> None:
    assert len(draw(large, 1, balance=Balance(0.45, 0.55)).new) == 6000


def test_a_draw_out_of_range_is_refused_with_what_is_allowed(mixed: ReplayBuffer) -> None:
    with pytest.raises(ConfigError, match=r"replay.share is 1; .* below 1"):
        draw(mixed, 2, history_share=1.0)
    with pytest.raises(ConfigError, match=r"replay\.weight is 'hard'; allowed are proportional"):
        draw(mixed, 2, weight="hard")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one half between them"):
        draw(mixed, 2, balance=Balance(0.6, 0.9))
    with pytest.raises(RunError, match="has no round 7; it has 0, 1, 2"):
        draw(mixed, 7)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
    st.integers(0, 200),
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=8, max_size=8),
)
def test_quotas_make_up_the_total_and_no_part_gives_more_than_it_has(
    sizes: list[int], total: int, weights: list[float]
) -> None:
    found = quotas(sizes, weights[: len(sizes)], total)
    assert sum(found) == min(total, sum(sizes))
    assert all(0 <= has <= size for has, size in zip(found, sizes, strict=True))


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 480))
def test_equal_weights_give_every_part_its_share_to_within_one(
    sizes: list[int], total: int
) -> None:
    whole = sum(sizes)
    wanted = min(total, whole)
    found = quotas(sizes, [1.0] * len(sizes), wanted)
    assert all(
        abs(has - size * wanted / max(whole, 1)) < 1 for has, size in zip(found, sizes, strict=True)
    )
