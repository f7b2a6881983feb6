"""One self-contained HTML file: no network, opens from a mail, light and dark, phone and paper."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Self

from stepmark.store.files import publish

from .disputes import Dispute, disputes_html
from .markdown import is_numeric
from .numbers import NOTHING
from .samples import SampleView, samples_html
from .solutions import SolutionView, solutions_html
from .text import escape, shorten

__all__ = ["Page"]


class Page:
    """A report page, built section by section; every method that adds returns the page.

    Text is plain text: it is escaped, never read as HTML or Markdown. The same sections give the
    same bytes. The page allows no script but its own, so that even a mistake here runs nothing.

    >>> page = Page("A run").text("Fine.").table(["step", "right"], [[0, "11 %"]])
    >>> "<td" in page.html() and page.html() == page.html()
    True
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._parts: list[str] = []
        self._figures = 0

    def section(self, title: str) -> Self:
        """A heading for what follows."""
        return self._add(f"<h2>{escape(title)}</h2>")

    def text(self, *paragraphs: str) -> Self:
        """Paragraphs; line breaks inside one are kept."""
        return self._add("\n".join(f"<p>{escape(shorten(text))}</p>" for text in paragraphs))

    def code(self, text: str) -> Self:
        """Lines to read or paste exactly as they stand."""
        return self._add(f'<pre tabindex="0">{escape(shorten(text))}</pre>')

    def table(
        self,
        headers: Sequence[object],
        rows: Sequence[Sequence[object]],
        caption: str = "",
        *,
        grey: Collection[int] = (),
    ) -> Self:
        """A table; columns of numbers stand to the right, None is a dash.

        Args:
            headers: one per column.
            rows: as many cells each.
            caption: above the table.
            grey: places of rows that are for orientation only.

        Raises:
            ValueError: a row has another number of cells than there are headers.
        """
        cells = [[NOTHING if cell is None else str(cell) for cell in row] for row in rows]
        if bad := next((row for row in cells if len(row) != len(headers)), None):
            raise ValueError(f"A row has {len(bad)} cells, but there are {len(headers)} headers.")
        numeric = [is_numeric(column) for column in zip(*cells, strict=True)] or [False] * len(
            headers
        )
        head = _cells("th", [str(header) for header in headers], numeric, ' scope="col"')
        body = "\n".join(
            f"<tr{' class=grey' if place in grey else ''}>{_cells('td', row, numeric)}</tr>"
            for place, row in enumerate(cells)
        )
        told = f'<p class="caption">{escape(caption)}</p>' if caption else ""
        label = escape(caption or "table")
        return self._add(
            f'{told}<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
            f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        )

    def figure(self, svg: str, caption: str = "") -> Self:
        """A drawing made by this project (`line_plot_svg`), which is trusted as it stands.

        Raises:
            ValueError: the text holds no ``<svg`` element.
        """
        start = svg.find("<svg")
        if start < 0:
            raise ValueError(f"A figure must be an <svg> element; this begins {svg[:40]!r}.")
        self._figures += 1
        label = escape(caption or f"figure {self._figures}")
        drawing = _with_own_ids(svg[start:].strip(), f"fig{self._figures}-")
        drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
        told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return self._add(f"<figure>{drawing}{told}</figure>")

    def samples(self, views: Sequence[SampleView]) -> Self:
        """Marked samples as cards, with buttons for right, wrong and other."""
        return self._add(samples_html(list(views)))

    def solutions(self, views: Sequence[SolutionView]) -> Self:
        """Solutions with a score per step as heat-maps, with buttons for each outcome."""
        return self._add(solutions_html(list(views)))

    def disputes(self, disputes: Sequence[Dispute], ours: str, theirs: str) -> Self:
        """Disagreements of two verdicts, to decide on and download."""
        return self._add(disputes_html(list(disputes), ours, theirs))

    def html(self) -> str:
        """The whole page."""
        script = _resource("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        subtitle = f'<p class="subtitle">{escape(self.subtitle)}</p>' if self.subtitle else ""
        return Template(_resource("page.html")).substitute(
            title=escape(self.title),
            subtitle=subtitle,
            script_hash=digest,
            style=_resource("page.css"),
            script=script,
            body="\n".join(self._parts),
        )

    def write(self, path: Path | str) -> Path:
        """The path of the file, written whole or not at all."""
        target = Path(path)
        with publish(target) as fresh:
            fresh.write_bytes(self.html().encode())
        return target

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self


def _cells(tag: str, cells: Sequence[str], numeric: Sequence[bool], more: str = "") -> str:
    return "".join(
        f"<{tag}{more}{' class=n' if right else ''}>{escape(shorten(cell, 1000))}</{tag}>"
        for cell, right in zip(cells, numeric, strict=True)
    )


def _with_own_ids(svg: str, prefix: str) -> str:
    """Two drawings on one page may use the same ids; each gets its own."""
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)


@cache
def _resource(name: str) -> str:
    return files("stepmark.report").joinpath(name).read_text(encoding="utf-8").strip()
