"""``stepmark prm``: the verbs of process reward models, one module each."""

from __future__ import annotations

import typer

from . import prm_convert, prm_inspect

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Process reward models: convert, inspect.")
app.command("convert")(prm_convert.convert)
app.command("inspect")(prm_inspect.inspect)
