"""``stepmark train``: any backend, on a task or on data of your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Debug, Json, emit, out, say, warn
from .golds import tell_golds
from .memory import memory_line, tell_memory
from .refreshing import refresh_cost, tell_refresh
from .replaying import replay_file

if TYPE_CHECKING:
    from stepmark.config import Composed
    from stepmark.rl_backends import TrainResult

    from .plan import Plan

__all__ = ["train", "write_reports"]


def train(
    backend: Annotated[
        str | None, typer.Option(help="grpo, ppo, dpo, sft ..., or one of yours.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings that ship: config presets.")] = None,
    config: Annotated[
        list[Path] | None, typer.Option(help="TOML file of settings; later ones win.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting: rollout.group_size=8.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Folder or hub id of the policy.")] = None,
    task: Annotated[str | None, typer.Option(help="gsm8k, or several: gsm8k:2,arith:1.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Your own data: file, folder or hub id, with :split.")
    ] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of the problem.")] = None,
    gold_column: Annotated[str | None, typer.Option(help="Column of the gold.")] = None,
    verifier: Annotated[
        list[str] | None, typer.Option(help="Name, name?key=value, or file.py:function.")
    ] = None,
    scorer: Annotated[list[str] | None, typer.Option(help="Of steps: arith-steps.")] = None,
    engine: Annotated[str | None, typer.Option(help="What draws completions.")] = None,
    out_: Annotated[Path | None, typer.Option("--out", help="Run folder.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run in --out.")] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Check and print the settings; load no model.")
    ] = False,
    replay_batch: Annotated[
        Path | None, typer.Option(help="Minibatch that stopped a run: its loss, its worst sample.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a policy: supervised on worked solutions, or by rewards from verifiers."""
    from stepmark.config import Flag, compose

    if replay_batch is not None:
        replay_file(replay_batch, as_json)
        return
    composed = compose(
        config or [],
        set_ or [],
        {
            "algorithm.backend": Flag("--backend", backend),
            "model.policy": Flag("--model", model),
            "data.task": Flag("--task", task),
            "data.dataset": Flag("--dataset", dataset),
            "data.prompt_column": Flag("--prompt-column", prompt_column),
            "data.gold_column": Flag("--gold-column", gold_column),
            "reward.verifiers": Flag("--verifier", verifier),
            "reward.scorers": Flag("--scorer", scorer),
            "rollout.engine": Flag("--engine", engine),
        },
        preset=preset,
    )
    if dry_run:
        _dry_run(composed, as_json)
        return
    _run(composed, out_, resume, as_json)


def _dry_run(composed: Composed, as_json: bool) -> None:
    from dataclasses import replace

    from stepmark.config import settings_of

    from .config import show_tree
    from .plan import make_plan, read_settings

    model = {"policy": "MODEL", **composed.tree.get("model", {})}
    config, _ = read_settings(replace(composed, tree={**composed.tree, "model": model}))
    rows = settings_of(type(config), composed)
    value = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
    missing = [] if "policy" in composed.tree.get("model", {}) else ["--model MODEL"]
    if not config.data.task and config.data.dataset is None:
        missing.append("--task NAME (or --dataset FILE)")
    # With --json an error is the one document; people see the settings beside what is wrong.
    plan = make_plan(composed) if as_json and not missing else None
    if plan is not None and (cost := refresh_cost(plan)) is not None:
        value["reward.refresh.estimate"] = {"value": cost._asdict(), "origin": "estimate"}
    emit(value, as_json, lambda: show_tree(rows))
    if missing:
        say(f"These settings are valid. A run needs more: {' and '.join(missing)}.")
        return
    plan = plan or make_plan(composed)
    _announce(plan)
    tell_memory(plan)
    tell_refresh(plan)
    names = ", ".join(f"{task.name} ({len(task.problems):,} problems)" for task in plan.tasks)
    say(f"These settings can run: {names}. Nothing was loaded or written.")


def _announce(plan: Plan) -> None:
    for line in plan.announcements:
        say(line)
    for line in plan.notes:
        warn(line)
    for verifier, _ in plan.verifiers:
        for task in (*plan.tasks, *plan.eval_tasks):
            tell_golds(verifier, ((p.id, p.gold) for p in task.problems), task.name)
    if not plan.eval_tasks:
        warn("no held-out evaluation: name problems for it with --set data.eval_task=NAME.")


def _run(composed: Composed, out_: Path | None, resume: bool, as_json: bool) -> None:
    from stepmark.errors import ConfigError, VerifierError
    from stepmark.verifiers import close_workers

    from .interrupt import same_command, stoppable
    from .plan import make_plan
    from .watch import Watch
    from .wiring import next_run_folder, start

    if resume and out_ is None:
        raise ConfigError("--resume continues a run that lies somewhere: name it with --out RUN.")
    plan = make_plan(composed)
    _announce(plan)
    name = plan.backend.config.backend
    folder = out_ or next_run_folder(f"{name}-{plan.tasks[0].name}")
    say(f"{name} on {', '.join(task.name for task in plan.tasks)}; the run goes to {folder}")
    if line := memory_line(plan):
        say(line)
    onwards = same_command(folder, "--resume")
    try:
        with stoppable(onwards), Watch(name) as watch:
            result = start(plan, folder, resume=resume, on_event=watch)
    except VerifierError as error:
        raise VerifierError(f"{error}\nWhen it is mended, continue with:\n    {onwards}") from error
    finally:
        close_workers()
    write_reports(folder, f"{name}: {plan.config.model.policy}")
    emit(_row(result, folder), as_json, lambda: _tell(result, folder))


def write_reports(folder: Path, title: str) -> None:
    """``report.html`` and ``table.md`` of a training run, in its folder."""
    from stepmark.report.training import training_page, training_table
    from stepmark.store import RunFolder, publish

    run = RunFolder.open(folder)
    with publish(folder / "table.md") as part:
        part.write_text(training_table(run), encoding="utf-8")
    training_page(run, title).write(folder / "report.html")


def _row(result: TrainResult, folder: Path) -> dict[str, Any]:
    return {
        "run": str(folder),
        "step": result.step,
        "final": str(result.final),
        "best": None if result.best is None else str(result.best),
        "best_step": result.best_step,
        "metrics": dict(result.metrics),
    }


def _tell(result: TrainResult, folder: Path) -> None:
    found = result.metrics
    shown = {"reward": "reward {:.3f}", "eval/accuracy": "held-out accuracy {:.1%}"}
    shown |= {"loss": "loss {:.3f}", "completions/mean_length": "{:.0f} tokens each"}
    numbers = [text.format(found[key]) for key, text in shown.items() if key in found]
    out.print(f"Done after step {result.step}: {', '.join(numbers)}", markup=False)
    out.print(f"  checkpoint  {result.final}", markup=False)
    if result.best is not None:
        out.print(f"  best        {result.best} (step {result.best_step})", markup=False)
    out.print(f"  table       {folder / 'table.md'}", markup=False)
    out.print(f"  page        {folder / 'report.html'}", markup=False)
    model = result.final if result.best is None else result.best
    out.print(f"Next: stepmark eval run --model {model} --task NAME --out FOLDER", markup=False)
