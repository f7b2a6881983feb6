"""Heat maps: every value is written, empty squares stay empty, equal numbers give equal bytes."""

from __future__ import annotations

from typing import Any

import pytest

from stepmark.report import heat_map_svg

GIVEN: dict[str, Any] = {
    "rows": ["0", "1 (rejected)"], "columns": ["0", "1"], "title": "F1", "xlabel": "set",
    "ylabel": "model",
}  # fmt: skip


def test_every_value_is_written_and_an_unknown_one_is_not() -> None:
    found = heat_map_svg([[0.25, None], [0.75, 1.0]], **GIVEN)
    assert found.startswith("<svg")
    assert [text in found for text in ("0.25", "0.75", "1.00", "None", "nan")] == [True] * 3 + [
        False
    ] * 2
    assert "1 (rejected)" in found


def test_equal_numbers_give_equal_bytes() -> None:
    one, two = (heat_map_svg([[0.5, 0.1], [0.2, None]], **GIVEN) for _ in range(2))
    assert one == two


def test_names_and_values_must_fit() -> None:
    with pytest.raises(ValueError, match="do not fit the values"):
        heat_map_svg([[0.5]], **GIVEN)
