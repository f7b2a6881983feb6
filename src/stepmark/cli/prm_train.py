"""``stepmark prm train``: a process reward model from labelled steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import ConfigError

from .console import Debug, Json, emit, err, grid, out, say, warn
from .interrupt import same_command, stoppable
from .launched import run_folder, speaking_once

if TYPE_CHECKING:
    from stepmark.config import Composed
    from stepmark.prm.data import Counts
    from stepmark.prm.fitting import FitResult
    from stepmark.prm.train import Prepared

__all__ = ["train"]

Base = Annotated[str | None, typer.Option(help="Folder or hub id of a causal language model.")]
Data = Annotated[
    list[str] | None, typer.Option("--data", metavar="ROWS.jsonl", help="Rows; repeatable.")
]
Head = Annotated[str | None, typer.Option(help="classifier, or two_logits.")]
Files = Annotated[
    list[Path] | None, typer.Option("--config", help="TOML file of settings; later ones win.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="One setting: algorithm.learning_rate=1e-5.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="RUN", help="Run folder.")]
Resume = Annotated[bool, typer.Option(help="Continue the run in --out.")]
DryRun = Annotated[bool, typer.Option(help="Check settings and rows; load no weights.")]


@speaking_once
def train(
    base: Base = None,
    data: Data = None,
    head: Head = None,
    config: Files = None,
    set_: Sets = None,
    out_: Out = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a process reward model on rows of prm convert; its checkpoints score steps."""
    from stepmark.config import Flag, compose, validate
    from stepmark.prm.train_config import TABLES, PrmConfig

    composed = compose(
        config or [],
        set_ or [],
        {
            "model.base": Flag("--base", base),
            "model.head": Flag("--head", head),
            "data.rows": Flag("--data", data or None),
        },
        tables=TABLES,
    )
    settings = validate(PrmConfig, composed.tree, origin=composed.origin_of)
    if resume and out_ is None:
        raise ConfigError("--resume continues a run that lies somewhere: name it with --out RUN.")
    from stepmark.prm.train import prepare

    prepared = prepare(settings)
    tell_counts(prepared.counts, prepared.source.dropped)
    if dry_run:
        show_settings(PrmConfig, composed, settings, as_json, prepared.to_row())
        return
    _run(prepared, out_, resume, as_json)


def _run(prepared: Prepared, out_: Path | None, resume: bool, as_json: bool) -> None:
    from stepmark.prm.train import train_step_model

    folder = run_folder(out_, "prm")
    say(f"prm on {', '.join(prepared.config.data.rows)}; the run goes to {folder}")
    with stoppable(same_command(folder, "--resume")), watching("prm") as watch:
        result = train_step_model(prepared, folder, resume=resume, on_event=watch)
    emit(row_of(result, folder), as_json, lambda: tell_result(result))


def watching(what: str) -> Any:
    """The live view of a training, or lines where there is no terminal."""
    from .watch import Watch

    return Watch(what)


def tell_counts(counts: dict[str, Counts] | Any, dropped: dict[str, int] | Any) -> None:
    """What became of rows and labels, before anything is learnt."""
    table = grid("rows", "read", "labels", "wanted", "kept", "right", "wrong")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in counts.items():
        numbers = (one.rows, sum(one.given), sum(one.wanted), sum(one.kept), *one.kept)
        table.add_row(name.replace("_", " "), *(f"{number:,}" for number in numbers))
    err.print(table, soft_wrap=False)
    for name, one in counts.items():
        for reason, number in sorted(one.dropped.items()):
            say(f"{name.replace('_', ' ')}: {number:,} rows are not used: {reason}")
        if sum(one.kept) < sum(one.wanted):
            lost = sum(one.wanted) - sum(one.kept)
            warn(f"{name.replace('_', ' ')}: truncation costs {lost:,} labels.")
    for reason, number in sorted(dropped.items()):
        say(f"{number:,} rows are not read: {reason}")


def show_settings(
    model: type[Any], composed: Composed, config: Any, as_json: bool, counts: dict[str, Any]
) -> None:
    """The settings with where they came from, and the memory that a run would take."""
    from stepmark.config import settings_of

    from .config import show_tree

    rows = settings_of(model, composed)
    value: dict[str, Any] = {r.key: {"value": r.value, "origin": r.origin} for r in rows}
    emit({"settings": value, "data": counts}, as_json, lambda: show_tree(rows))
    tell_memory(config)
    say("These settings can run. No weights were loaded, and nothing was written.")


def tell_memory(config: Any) -> None:
    """The estimate of memory of a training, as a table."""
    from stepmark.training.memory import memory_rows, shape_of

    from .memory import is_cast, mib

    table = config.model
    shape = shape_of(table.base, table.peft)
    if shape is None:
        say("memory: no estimate, as no folder here holds a config of the model that is known.")
        return
    rows = memory_rows(
        shape,
        dtype=table.dtype,
        is_cast=is_cast(table),
        checkpointing=table.gradient_checkpointing,
        microbatch_tokens=config.algorithm.tokens_per_microbatch,
    )
    shown = grid("memory (estimate)", "MiB")
    shown.columns[1].justify = "right"
    for row in rows:
        shown.add_row(row.what, mib(row.size))
    shown.add_row("together", mib(sum(row.size for row in rows)), style="bold")
    err.print(shown, soft_wrap=False)


def row_of(result: FitResult, folder: Path) -> dict[str, Any]:
    """A finished training as plain values, for machines."""
    return {
        "run": str(folder),
        "step": result.step,
        "final": str(result.final),
        "best": None if result.best is None else str(result.best),
        "best_step": result.best_step,
        "best_metric": result.best_metric,
        "best_value": result.best_value,
        "converged": result.converged,
        "why": result.why,
        "metrics": dict(result.metrics),
    }


def tell_result(result: FitResult) -> None:
    """Where a finished training stands, for people."""
    out.print(f"Done after step {result.step}: {result.why}", markup=False)
    if result.best_value is not None:
        out.print(
            f"  held-out {result.best_metric} {result.best_value:.3f} at step {result.best_step}",
            markup=False,
        )
    out.print(f"  checkpoint  {result.final}", markup=False)
    if result.best is not None:
        out.print(f"  best        {result.best} (step {result.best_step})", markup=False)
