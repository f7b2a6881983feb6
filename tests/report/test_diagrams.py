"""Diagrams of step scores: every count is written, and the same numbers give the same bytes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("matplotlib", reason="plots come with the train extra")

from stepmark.report import confusion_svg, position_svg, reliability_svg
from stepmark.report.diagrams import Reliability

BINS = [Reliability(0.1, 0.2, 1040), Reliability(0.5, 0.6, 1041), Reliability(0.52, 1.0, 7)]


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_reliability_diagram_has_the_counts_where_there_is_room() -> None:
    svg = reliability_svg(BINS, "Are scores chances?")
    assert svg == reliability_svg(BINS, "Are scores chances?")
    found = texts(svg)
    assert {"1,040", "1,041"} <= set(found)
    assert "7" not in found, "its neighbour stands there"
    assert "var(--s1" in svg
    assert reliability_svg([], "nothing").startswith("<svg")


def test_a_confusion_has_every_solution_and_late_steps_share_a_cell() -> None:
    svg = confusion_svg({(-1, -1): 31, (0, 0): 17, (12, 30): 5, (9, 10): 6}, "t")
    found = texts(svg)
    assert {"31", "17", "11"} <= set(found)
    assert found.count("none") == 2
    assert found.count("10+") == 2
    assert confusion_svg({}, "t").startswith("<svg")


def test_positions_have_their_counts_below_them() -> None:
    lines = {"one $x$": [(1, 400, 0.7), (2, 9, None), (10, 12, 0.4)], "two": [(1, 390, 0.6)]}
    found = texts(position_svg(lines, "t"))
    assert {"400", "9", "12", "10+"} <= set(found)
    assert "one $x$" in found
