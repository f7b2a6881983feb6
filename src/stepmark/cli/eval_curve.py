"""``stepmark eval curve``: accuracy against the number of completions, as a table and a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .console import Debug, Json, emit, say

__all__ = ["curve"]


def curve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with several completions.")],
    scorer: Annotated[
        str | None, typer.Option(help="Key of a scorer of this run, or its name before the @.")
    ] = None,
    aggregation: Annotated[
        str, typer.Option(help="How steps become one score: min, or several: min,last.")
    ] = "min",
    out_: Annotated[Path | None, typer.Option("--out", help="Picture to write: .svg.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print accuracy at 1, 2, 4 ... completions: pass@N, majority, and by a scorer; draw it.

    stepmark eval curve RUN --scorer prm --aggregation min,last --out curve.svg
    """
    from stepmark.errors import ConfigError
    from stepmark.evals.curve import curves, curves_json, curves_svg, curves_text
    from stepmark.store import publish
    from stepmark.verifiers import close_workers

    if out_ is not None and out_.suffix != ".svg":
        raise ConfigError(f"--out is {str(out_)!r}; its name must end in .svg.")
    hows = [word.strip() for word in aggregation.split(",") if word.strip()]
    try:
        found = curves(run, scorer, hows)
    finally:
        close_workers()
    if out_ is not None:
        with publish(out_, replace=True) as part:
            part.write_text(curves_svg(found, f"{run.name}: accuracy by completions"), "utf-8")
        say(f"written: {out_}")
    emit({"curves": curves_json(found)}, as_json, lambda: _write(curves_text(found)))


def _write(text: str) -> None:
    sys.stdout.write(text)
