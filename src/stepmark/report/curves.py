"""Accuracy against the number of samples as SVG text: a line a method, on an axis of doublings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plots import INK, Series, draw_series, dress, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curve_svg"]


def curve_svg(series: Sequence[Series], title: str, xlabel: str = "samples of a problem") -> str:
    """A plot of shares over numbers of samples, each line in the band of its interval.

    The axis of samples is logarithmic to base 2, so that each doubling has the same width; the
    lines are named beside the plot, in the order of their ends.

    Args:
        series: at most six; x is a number of samples, y a share in [0, 1].
        title: above the plot.
        xlabel: below it.

    Raises:
        SetupError: matplotlib is not installed.
        ValueError: a series has another number of bands than of points.
    """
    sizes = sorted({x for line in series for x, _ in line.points})

    def draw(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        for place, line in enumerate(series):
            draw_series(axes, line, place)
        dress(axes, title, xlabel, "accuracy", 0)
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        _name(axes, series)

    return svg_of(draw, (7.2, 3.8))


def _name(axes: Axes, series: Sequence[Series]) -> None:
    """The legend on the right, the line that ends highest first."""
    handles, names = axes.get_legend_handles_labels()
    ends = [line.points[-1][1] if line.points else 0.0 for line in series]
    order = sorted(range(len(series)), key=lambda at: -ends[at])
    axes.legend(
        [handles[at] for at in order],
        [names[at] for at in order],
        frameon=False,
        labelcolor=INK[0],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
    )
