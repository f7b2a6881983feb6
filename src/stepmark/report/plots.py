"""Line plots as SVG text: the same numbers give the same bytes, readable in light and dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmark.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GRID",
    "INK",
    "LINES",
    "Series",
    "band_plot_svg",
    "draw_series",
    "dress",
    "line_plot_svg",
    "svg_of",
]

INK = ("#010101", "var(--ink, #1c2128)")
GRID = ("#010102", "var(--line, #d3d9e0)")
LINES = (
    ("#010103", "var(--s1, #0a62b0)"),
    ("#010104", "var(--s2, #b84a00)"),
    ("#010105", "var(--s3, #0b7a55)"),
    ("#010106", "var(--s4, #9b3a86)"),
    ("#010107", "var(--s5, #6a5400)"),
    ("#010108", "var(--s6, #4d4d4d)"),
)
"""Stand-in colours that are drawn with, and the page's own colours that replace them: a drawing on
a page follows its light or dark scheme, and the fallback serves a file that is opened alone."""

DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
"""Lines differ by more than their colour."""


@dataclass(frozen=True, slots=True)
class Series:
    """One named line, with an interval around each point where there is one."""

    name: str
    points: tuple[tuple[float, float], ...]
    """x and y; a point that is not finite leaves a gap."""
    bands: tuple[tuple[float, float], ...] = ()
    """Lower and upper bound of y for each point, or nothing."""


def line_plot_svg(
    series: Mapping[str, Sequence[tuple[float, float]]], title: str, xlabel: str, ylabel: str
) -> str:
    """A plot with one line per name.

    Args:
        series: points (x, y) by name.
        title: above the plot.
        xlabel: with its unit.
        ylabel: with its unit.

    Raises:
        SetupError: matplotlib is not installed.
    """
    lines = [Series(name, tuple(points)) for name, points in series.items()]
    return band_plot_svg(lines, title, xlabel, ylabel)


def band_plot_svg(series: Sequence[Series], title: str, xlabel: str, ylabel: str) -> str:
    """A plot with one line per series, each in a band that shows its interval.

    Raises:
        SetupError: matplotlib is not installed.
        ValueError: a series has another number of bands than of points.
    """
    require("matplotlib", extra="train", purpose="A plot")
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Axes) -> None:
        for place, line in enumerate(series):
            draw_series(axes, line, place)
        dress(axes, title, xlabel, ylabel, len(series))
        if all(float(x).is_integer() for line in series for x, _ in line.points):
            axes.xaxis.set_major_locator(
                MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True)
            )

    return svg_of(draw)


def svg_of(draw: Callable[[Axes], None], size: tuple[float, float] = (5.3, 3.2)) -> str:
    """What a function draws on axes, as SVG text in the colours of the page.

    Args:
        draw: draws with the stand-in colours `INK`, `GRID` and `LINES`.
        size: width and height in inches.

    Raises:
        SetupError: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", extra="train", purpose="A plot")
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings = {
        "svg.hashsalt": "stepmark",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9.5,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return _finish(file.getvalue())


def draw_series(axes: Axes, line: Series, place: int) -> None:
    """One line of a plot, in its band, as its place among the lines asks for."""
    if line.bands and len(line.bands) != len(line.points):
        raise ValueError(
            f"The series {line.name!r} has {len(line.points)} points but {len(line.bands)} bands."
        )
    color = LINES[place % len(LINES)][0]
    xs = [float(x) for x, _ in line.points]
    ys = [float(y) if math.isfinite(y) else math.nan for _, y in line.points]
    few = len(xs) <= 12
    axes.plot(
        xs,
        ys,
        color=color,
        linewidth=1.9,
        linestyle=DASHES[place % len(DASHES)],
        marker="o" if few else None,
        markersize=4,
        label=line.name.replace("$", r"\$"),
    )
    if line.bands:
        low, high = zip(*line.bands, strict=True)
        axes.fill_between(xs, low, high, color=color, alpha=0.16, linewidth=0)


def dress(axes: Axes, title: str, xlabel: str, ylabel: str, lines: int) -> None:
    """Title, labels, grid and a legend of so many lines, as all plots have them."""
    plain = [text.replace("$", r"\$") for text in (title, xlabel, ylabel)]
    axes.set_title(plain[0], loc="left", color=INK[0], fontsize=10.5, fontweight="bold")
    axes.set_xlabel(plain[1], color=INK[0])
    axes.set_ylabel(plain[2], color=INK[0])
    axes.tick_params(colors=INK[0], length=3)
    axes.grid(True, axis="y", color=GRID[0], linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID[0])
    if lines:
        legend = axes.legend(frameon=False, labelcolor=INK[0], loc="best")
        legend.set_visible(lines > 1 or bool(legend.get_texts()[0].get_text()))


def _finish(svg: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for stand_in, real in (INK, GRID, *LINES):
        svg = svg.replace(stand_in, real)
    # The fonts of the machine that draws would not be on the reader's: let the page choose.
    svg = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", svg)
    svg = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    return svg.strip() + "\n"
