"""The known layouts, and which of them a file has."""

from __future__ import annotations

from collections.abc import Iterable

from .columns import Columns
from .harnesses import HARNESSES
from .layout import Laid
from .lines import Line
from .logs import OPENAI, STEPMARK, TRL, VERL

__all__ = ["LAYOUTS", "laid_out"]

LAYOUTS = (STEPMARK, *HARNESSES, VERL, TRL, OPENAI)


def laid_out(lines: list[Line], names: Iterable[str]) -> tuple[str, Laid]:
    """The name of the layout, empty for plain rows, and the rows as it reads them."""
    columns = frozenset(names)
    for layout in LAYOUTS:
        if layout.fits(columns):
            return layout.name, layout.read(lines)
    return "", Laid(lines, Columns())
