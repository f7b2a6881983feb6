"""What people look at: pages in one HTML file, plots, Markdown tables, numbers with intervals.

All text from models and data sets is escaped; nothing here needs torch, and only the plots need
matplotlib.
"""

from .curves import curve_svg
from .diagrams import confusion_svg, position_svg, reliability_svg
from .disputes import Dispute
from .heat_maps import heat_map_svg
from .markdown import markdown_table
from .numbers import NOTHING, count, number, percent, points
from .page import Page
from .plots import Series, band_plot_svg, line_plot_svg
from .samples import SampleView
from .solutions import SolutionView
from .text import escape, shorten, visible

__all__ = [
    "NOTHING",
    "Dispute",
    "Page",
    "SampleView",
    "Series",
    "SolutionView",
    "band_plot_svg",
    "confusion_svg",
    "count",
    "curve_svg",
    "escape",
    "heat_map_svg",
    "line_plot_svg",
    "markdown_table",
    "number",
    "percent",
    "points",
    "position_svg",
    "reliability_svg",
    "shorten",
    "visible",
]
