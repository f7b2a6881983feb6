"""``stepmark prm``: the verbs of process reward models, one module each."""

from __future__ import annotations

import typer

from . import (
    prm_annotate,
    prm_convert,
    prm_eval,
    prm_inspect,
    prm_refresh,
    prm_report,
    prm_score,
    prm_search,
    prm_train,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Process reward models: from labelled steps to scores."
)
app.command("annotate")(prm_annotate.annotate)
app.command("convert")(prm_convert.convert)
app.command("eval")(prm_eval.evaluate)
app.command("inspect")(prm_inspect.inspect)
app.command("refresh")(prm_refresh.refresh)
app.command("report")(prm_report.report)
app.command("score")(prm_score.score)
app.command("search")(prm_search.search)
app.command("train")(prm_train.train)
