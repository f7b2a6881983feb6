"""The curve over numbers of samples: each doubling as wide, every line named, the same bytes."""

from __future__ import annotations

import re

import pytest

from stepmark.report import Series, curve_svg

LINES = [
    Series("majority", ((1, 0.3), (2, 0.3), (4, 0.4)), ((0.2, 0.4), (0.2, 0.4), (0.3, 0.5))),
    Series("pass@N", ((1, 0.3), (2, 0.5), (4, 0.8))),
]


def test_lines_and_sizes_are_named_and_the_bytes_are_the_same() -> None:
    svg = curve_svg(LINES, "arith")
    assert svg == curve_svg(LINES, "arith")
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert {"arith", "majority", "pass@N", "1", "2", "4", "40 %"} <= set(texts)
    assert texts.index("pass@N") < texts.index("majority")


def test_each_doubling_is_as_wide() -> None:
    tick = re.compile(r'<g id="xtick_\d+">.*?<use [^>]*x="([\d.]+)"', re.DOTALL)
    ticks = [float(x) for x in tick.findall(curve_svg(LINES, "t"))]
    assert len(ticks) == 3
    assert ticks[1] - ticks[0] == pytest.approx(ticks[2] - ticks[1], abs=1e-4)
