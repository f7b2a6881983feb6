"""Plots: the same numbers give the same bytes, and the page's colours."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("matplotlib", reason="plots come with the train extra")

from stepmark.report import Series, band_plot_svg, line_plot_svg

CURVE = {"reward": [(0, 0.1), (1, 0.4), (2, 0.5)], "a <b> & $x$": [(0, 0.2), (2, math.nan)]}


def test_the_same_numbers_give_the_same_bytes() -> None:
    first = line_plot_svg(CURVE, "Reward", "step", "share")
    assert first == line_plot_svg(CURVE, "Reward", "step", "share")
    assert first.startswith("<svg")
    assert "<dc:date>" not in first


def test_colours_follow_the_page() -> None:
    svg = line_plot_svg(CURVE, "Reward", "step", "share")
    assert "var(--ink" in svg
    assert "var(--s2" in svg
    assert "#0101" not in svg


def test_names_are_text_and_never_tags_or_formulas() -> None:
    svg = line_plot_svg(CURVE, "50 % & $5", "step", "<share>")
    assert "a &lt;b&gt; &amp; $x$" in svg
    assert "50 % &amp; $5" in svg
    assert "&lt;share&gt;" in svg


def test_bands_must_match_their_points() -> None:
    line = Series("a", ((0, 0.5), (1, 0.6)), ((0.4, 0.6), (0.5, 0.7)))
    assert "opacity: 0.16" in band_plot_svg([line], "t", "x", "y")
    with pytest.raises(ValueError, match="2 points but 1 bands"):
        band_plot_svg([Series("a", line.points, line.bands[:1])], "t", "x", "y")


def test_an_empty_plot_is_a_plot() -> None:
    assert line_plot_svg({}, "t", "x", "y").startswith("<svg")
    assert line_plot_svg({"nothing yet": []}, "t", "x", "y").startswith("<svg")
