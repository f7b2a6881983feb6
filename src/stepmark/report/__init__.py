"""What people look at: pages in one HTML file, plots, Markdown tables, numbers with intervals.

All text from models and data sets is escaped; nothing here needs torch, and only the plots need
matplotlib.
"""

from .disputes import Dispute
from .markdown import markdown_table
from .numbers import NOTHING, count, number, percent, points
from .page import Page
from .plots import Series, band_plot_svg, line_plot_svg
from .samples import SampleView
from .text import escape, shorten, visible

__all__ = [
    "NOTHING",
    "Dispute",
    "Page",
    "SampleView",
    "Series",
    "band_plot_svg",
    "count",
    "escape",
    "line_plot_svg",
    "markdown_table",
    "number",
    "percent",
    "points",
    "shorten",
    "visible",
]
