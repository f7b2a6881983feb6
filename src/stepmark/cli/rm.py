"""``stepmark rm``: outcome reward models, one number for a whole solution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepmark.errors import ConfigError

from . import rm_eval
from .console import Debug, Json, emit, err, grid, say
from .interrupt import same_command, stoppable
from .launched import run_folder, speaking_once
from .prm_train import (
    Base,
    DryRun,
    Files,
    Out,
    Resume,
    Sets,
    row_of,
    show_settings,
    tell_result,
    watching,
)

if TYPE_CHECKING:
    from stepmark.prm.outcome_train import PreparedOutcomes

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Outcome reward models: train, and evaluate.")
app.command("eval")(rm_eval.evaluate)

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="FILE.jsonl",
        help="Rows with final_correct, or prompt, chosen and rejected; repeatable.",
    ),
]
Objective = Annotated[str | None, typer.Option(help="pointwise, or pairwise.")]


@app.callback()
def _root() -> None: ...


@app.command()
@speaking_once
def train(
    base: Base = None,
    data: Data = None,
    objective: Objective = None,
    config: Files = None,
    set_: Sets = None,
    out_: Out = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train an outcome reward model; its checkpoints load as sequence classifiers."""
    from stepmark.config import Flag, compose, validate
    from stepmark.prm.train_config import TABLES, RmConfig

    composed = compose(
        config or [],
        set_ or [],
        {
            "model.base": Flag("--base", base),
            "data.rows": Flag("--data", data or None),
            "algorithm.objective": Flag("--objective", objective),
        },
        tables=TABLES,
    )
    settings = validate(RmConfig, composed.tree, origin=composed.origin_of)
    if resume and out_ is None:
        raise ConfigError("--resume continues a run that lies somewhere: name it with --out RUN.")
    from stepmark.prm.outcome_train import prepare_outcomes

    prepared = prepare_outcomes(settings)
    _tell_counts(prepared)
    if dry_run:
        show_settings(RmConfig, composed, settings, as_json, prepared.to_row())
        return
    _run(prepared, out_, resume, as_json)


def _run(prepared: PreparedOutcomes, out_: Path | None, resume: bool, as_json: bool) -> None:
    from stepmark.prm.outcome_train import train_outcome_model

    folder = run_folder(out_, "rm")
    say(f"rm on {', '.join(prepared.config.data.rows)}; the run goes to {folder}")
    with stoppable(same_command(folder, "--resume")), watching("rm") as watch:
        result = train_outcome_model(prepared, folder, resume=resume, on_event=watch)
    emit(row_of(result, folder), as_json, lambda: tell_result(result))


def _tell_counts(prepared: PreparedOutcomes) -> None:
    counts = prepared.to_row()
    table = grid("solutions", "right", "wrong", "pairs")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in ("train", "held_out"):
        table.add_row(name.replace("_", " "), *(f"{n:,}" for n in counts[name].values()))
    err.print(table, soft_wrap=False)
    for reason, number in counts["dropped"].items():
        say(f"{number:,} solutions are not used: {reason}")
