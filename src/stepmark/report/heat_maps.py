"""Tables of shares as shaded squares, in SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plots import INK, LINES, dress, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["heat_map_svg"]


def heat_map_svg(
    values: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    xlabel: str,
    ylabel: str,
) -> str:
    """Values in [0, 1], each written in a square that is the darker the higher it is.

    Args:
        values: by row and column; None is an empty square.
        rows: their names, from the top.
        columns: their names.
        title: above the picture.
        xlabel: what the columns are.
        ylabel: what the rows are.

    Raises:
        SetupError: matplotlib is not installed.
        ValueError: names and values differ in number.
    """
    if len(rows) != len(values) or any(len(row) != len(columns) for row in values):
        raise ValueError(
            f"{len(rows)} names of rows and {len(columns)} of columns do not fit the values."
        )

    def draw(axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        for down, row in enumerate(values):
            for across, value in enumerate(row):
                corner = (across - 0.5, down - 0.5)
                shade = 0.0 if value is None else 0.6 * min(max(value, 0.0), 1.0)
                square = Rectangle(corner, 1, 1, facecolor=LINES[0][0], alpha=shade, linewidth=0)
                axes.add_patch(square)
                said = "" if value is None else f"{value:.2f}"
                axes.text(across, down, said, ha="center", va="center", color=INK[0], fontsize=9)
        dress(axes, title, xlabel, ylabel, 0)
        axes.set_xticks(range(len(columns)), list(columns))
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(False)

    width = min(max(1.0 + 0.095 * len(title), 1.6 + 0.8 * len(columns)), 9.0)
    return svg_of(draw, (width, min(1.2 + 0.45 * len(rows), 9.0)))
