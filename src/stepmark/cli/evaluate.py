"""``stepmark eval``: benchmarks, recorded responses marked again, comparisons, tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import eval_curve
from .console import Debug, Json, emit, grid, out, plain, say, show

if TYPE_CHECKING:
    from stepmark.store import Sample
    from stepmark.types import Verdict

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Benchmarks: run, mark again, compare, tables.")

Text = str | None
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Run folder; again: continues it.")]
Verifier = Annotated[str, typer.Option(help="Name, name?key=value, or file.py:function.")]


@app.command("run")
def run_benchmark(
    model: Annotated[list[str], typer.Option(help="Folder or hub id; repeatable.")],
    task: Annotated[Text, typer.Option(help="gsm8k, or several: gsm8k,math500.")] = None,
    dataset: Annotated[
        Text, typer.Option(help="Your own data: file, folder or hub id, with :split.")
    ] = None,
    prompt_column: Annotated[Text, typer.Option(help="Column of the problem.")] = None,
    gold_column: Annotated[Text, typer.Option(help="Column of the gold.")] = None,
    prompt: Annotated[Text, typer.Option(help="Prompt template: name or TOML file.")] = None,
    n: Annotated[int, typer.Option(help="Completions per problem.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens per completion, at most.")] = None,
    limit: Annotated[int | None, typer.Option(help="So many problems, by a fixed hash.")] = None,
    first: Annotated[int | None, typer.Option(help="The first so many problems.")] = None,
    verifier: Verifier = "math",
    engine: Annotated[str, typer.Option(help="What draws completions.")] = "transformers",
    seed: Annotated[int, typer.Option(help="Of sampled completions.")] = 0,
    out_: OutFolder = None,
    resume: Annotated[bool, typer.Option("--resume", hidden=True)] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure models on tasks; the same command with the same --out continues a stopped run.

    stepmark eval run --model runs/grpo-arith-1/checkpoints/best --task arith
    """
    from .benchmark import Benchmark, load_evaluation_tasks

    tasks = load_evaluation_tasks(task, dataset, prompt_column, gold_column, prompt)
    plan = Benchmark(
        models=tuple(model),
        tasks=tasks,
        verifier=verifier,
        engine=engine,
        n=n,
        temperature=temperature,
        max_tokens=max_tokens,
        limit=limit,
        first=first,
        seed=seed,
        out=out_,
    )
    plan.run(as_json)


@app.command()
def regrade(
    source: Annotated[str, typer.Argument(metavar="FILE", help="Recorded responses, or a run.")],
    out_: Annotated[Path, typer.Option("--out", help="Folder for the verdicts.")],
    verifier: Verifier = "math",
    completion_column: Annotated[Text, typer.Option(help="Column of the completion.")] = None,
    gold_column: Annotated[Text, typer.Option(help="Column of the gold.")] = None,
    label_column: Annotated[Text, typer.Option(help="Column of a recorded verdict.")] = None,
    group_column: Annotated[Text, typer.Option(help="Rows are counted apart by it.")] = None,
    id_column: Annotated[Text, typer.Option(help="Column of the problem's id.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Mark recorded responses again, and list where the recorded verdicts differ from ours."""
    from .verify_file import FileJob, verify_file

    job = FileJob(
        source,
        out_,
        verifier,
        completion_column=completion_column,
        gold_column=gold_column,
        id_column=id_column,
        label_column=label_column,
        group_column=group_column,
    )
    return verify_file(job, as_json=as_json)


@app.command()
def compare(first: Run, second: Run, as_json: Json = False, debug: Debug = False) -> None:
    """Compare two runs on the same problems, in pairs: difference, interval, p, where they part."""
    from stepmark.evals import compare as compare_runs

    found = compare_runs(first, second)

    def render() -> None:
        out.print(str(found), markup=False)
        for word, ids in (("first", found.only_first), ("second", found.only_second)):
            shown = ", ".join(ids[:10])
            more = f" and {len(ids) - 10} more (--json lists all)" if len(ids) > 10 else ""
            if ids:
                out.print(f"  only the {word}: {shown}{more}", markup=False)

    emit(found.to_row(), as_json, render)


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of them.")],
    metrics: Annotated[
        Text,
        typer.Option(help="Further rows: pass@8,maj@8,bon@8:prm:min; see docs/prm-search.md."),
    ] = None,
    out_: Annotated[Path | None, typer.Option("--out", help="File to write: .md or .json.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the benchmark table of finished runs, in Markdown."""
    from stepmark.errors import ConfigError
    from stepmark.evals import (
        find_runs,
        measure,
        parse_metrics,
        read_result,
        table_json,
        table_text,
    )
    from stepmark.store import publish, write_json

    wanted, found = parse_metrics(metrics or ""), find_runs(runs)
    results = [read_result(run) for run in found]
    further = [measure(run, wanted) for run in found] if wanted else []
    if out_ is not None:
        if out_.suffix == ".json":
            write_json(out_, table_json(results, further))
        elif out_.suffix == ".md":
            with publish(out_) as part:
                part.write_text(table_text(results, further), encoding="utf-8")
        else:
            raise ConfigError(f"--out is {str(out_)!r}; its name must end in .md or .json.")
        say(f"written: {out_}")
    emit(table_json(results, further), as_json, lambda: _write(table_text(results, further)))


def _write(text: str) -> None:
    sys.stdout.write(text)


app.command("curve")(eval_curve.curve)


@app.command("show")
def show_run(
    run: Run,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="Only those that are not correct.")
    ] = False,
    id: Annotated[Text, typer.Option("--id", help="Only those of this problem.")] = None,
    limit: Annotated[int, typer.Option(help="So many, at most.")] = 5,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show completions of a run with their verdicts."""
    from stepmark.evals import show as find

    graded = find(run, wrong=wrong, id=id, limit=limit)
    rows = [
        {"id": sample.id, "k": sample.k}
        | verdict.to_row()
        | {"problem": sample.problem, "completion": sample.completion, "finish": sample.finish}
        for sample, verdict in graded
    ]
    emit({"rows": rows}, as_json, lambda: _tell_samples(graded))


def _tell_samples(graded: list[tuple[Sample, Verdict]]) -> None:
    from .verify import headline

    if not graded:
        out.print("There is no such completion.")
    for sample, verdict in graded:
        cut = ", cut off by max_tokens" if sample.finish == "length" else ""
        out.print(f"[bold]{plain(sample.id)}[/] [dim]k {sample.k}{cut}[/]")
        out.print(sample.problem, markup=False)
        out.print(sample.completion, markup=False, style="cyan")
        headline(verdict)
        out.print()


@app.command("tasks")
def list_tasks(as_json: Json = False, debug: Debug = False) -> None:
    """List the known tasks: splits, prompt, length, where the rows come from."""
    from stepmark.tasks import Task, tasks

    found: dict[str, Any] = {}
    for name in tasks.names():
        task = tasks.load(name)
        if isinstance(task, Task):
            found[name] = {
                "splits": list(task.splits),
                "prompt": task.prompt,
                "max_tokens": task.max_tokens,
                "source": task.source,
            }

    def render() -> None:
        rows = grid("task", "splits", "prompt", "max tokens", "from")
        for name, row in found.items():
            rows.add_row(
                f"[bold]{plain(name)}[/]",
                ", ".join(row["splits"]),
                plain(row["prompt"]),
                str(row["max_tokens"]),
                plain(row["source"]),
            )
        show(rows)
        say("Your own data: --dataset FILE --prompt-column NAME --gold-column NAME.")

    emit(found, as_json, render)
