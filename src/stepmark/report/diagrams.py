"""Diagrams of step scores as SVG text: reliability, first errors named, AUROC by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stepmark.statistics import wilson

from .plots import GRID, INK, LINES, dress, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Reliability", "confusion_svg", "position_svg", "reliability_svg"]

LAST = 9
"""Index of the step that stands for all from there on."""
APART = 0.07
"""Distance of two points of a diagram that leaves room for their counts."""


class Reliability(NamedTuple):
    """Steps of neighbouring scores."""

    mean_score: float
    share_right: float
    steps: int


def reliability_svg(bins: Sequence[Reliability], title: str) -> str:
    """Share of right steps over their mean score, with Wilson's interval and how many they are.

    Raises:
        SetupError: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=GRID[0], linewidth=1.4, label="scores are chances")
        xs, ys = [one.mean_score for one in bins], [one.share_right for one in bins]
        ends = [wilson(round(one.share_right * one.steps), one.steps) for one in bins]
        low = [max(0.0, y - end.low) for y, end in zip(ys, ends, strict=True)]
        high = [max(0.0, end.high - y) for y, end in zip(ys, ends, strict=True)]
        color = LINES[0][0]
        axes.errorbar(xs, ys, [low, high], color=color, marker="o", markersize=4.5, linewidth=1.4)
        told = -1.0
        for one, end in zip(bins, ends, strict=True):
            if one.mean_score - told >= APART:
                told = one.mean_score
                place = (one.mean_score, end.high)
                axes.annotate(
                    f"{one.steps:,}",
                    place,
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    color=INK[0],
                    fontsize=8,
                )
        dress(axes, title, "mean score of the steps", "share of right steps", 1)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.1)

    return svg_of(draw, (5.3, 3.9))


def confusion_svg(counts: Mapping[tuple[int, int], int], title: str) -> str:
    """Solutions by their first error and by the step that was named; the shade is within a row.

    Args:
        counts: solutions by first error and prediction, from 0, each -1 for none.
        title: above the diagram.

    Raises:
        SetupError: matplotlib is not installed.
    """
    cells: Counter[tuple[int, int]] = Counter()
    for (error, said), number in counts.items():
        cells[min(error, LAST), min(said, LAST)] += number
    most = max((index for pair in cells for index in pair), default=-1)
    places = [-1, *range(most + 1)]
    totals = {row: sum(cells[row, column] for column in places) for row in places}

    def draw(axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        for down, row in enumerate(places):
            for across, column in enumerate(places):
                _cell(axes, Rectangle, (across, down), cells[row, column], totals[row])
        dress(axes, title, "first step named", "first error", 0)
        names = ["none", *(f"{n + 1}" + "+" * (n == LAST) for n in range(most + 1))]
        axes.set_xticks(range(len(places)), names)
        axes.set_yticks(range(len(places)), names)
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_ylim(len(places) - 0.5, -0.5)
        axes.grid(False)

    return svg_of(draw, (5.3, 1.2 + 0.28 * len(places)))


def _cell(axes: Axes, shape: type, place: tuple[int, int], number: int, total: int) -> None:
    across, down = place
    corner = (across - 0.5, down - 0.5)
    share = number / total if total else 0.0
    axes.add_patch(shape(corner, 1, 1, facecolor=LINES[0][0], alpha=0.5 * share, linewidth=0))
    if across == down:
        axes.add_patch(shape(corner, 1, 1, fill=False, edgecolor=INK[0], linewidth=1, zorder=3))
    if number:
        axes.text(across, down, f"{number:,}", ha="center", va="center", color=INK[0], fontsize=8)


def position_svg(lines: Mapping[str, Sequence[tuple[int, int, float | None]]], title: str) -> str:
    """AUROC of the steps at each position, one line per scorer, with the steps below.

    Args:
        lines: by name, position from 1, steps there, and their AUROC; the tenth position stands for
            all from there.
        title: above the diagram.

    Raises:
        SetupError: matplotlib is not installed.
    """
    counts: dict[int, int] = {}
    for points in lines.values():
        for at, number, _ in points:
            counts[at] = max(number, counts.get(at, 0))

    def draw(axes: Axes) -> None:
        axes.axhline(0.5, color=GRID[0], linewidth=1.4)
        for place, (name, points) in enumerate(lines.items()):
            known = [(at, area) for at, _, area in points if area is not None]
            axes.plot(
                [at for at, _ in known],
                [area for _, area in known],
                color=LINES[place % len(LINES)][0],
                linestyle=("solid", "dashed", "dotted", "dashdot")[place % 4],
                marker="o",
                markersize=4,
                linewidth=1.9,
                label=name.replace("$", r"\$"),
            )
        dress(axes, title, "position of the step, and labelled steps there", "AUROC", len(lines))
        told = [f"{at}{'+' * (at > LAST)}\n{number:,}" for at, number in sorted(counts.items())]
        axes.set_xticks(sorted(counts), told)
        axes.set_ylim(-0.03, 1.03)

    return svg_of(draw)
