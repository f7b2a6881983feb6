"""``stepmark prm search``: completions found by a search over steps that a scorer leads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Debug, Json, emit, grid, plain, say, show
from .interrupt import same_command, stoppable

if TYPE_CHECKING:
    from stepmark.evals import SearchJob, SearchResult

__all__ = ["search"]

Text = str | None


def search(
    model: Annotated[str, typer.Option(help="Folder or hub id of the policy.")],
    scorer: Annotated[
        str, typer.Option(help="Checkpoint, name or name?key=value, or file.py:function.")
    ],
    task: Annotated[Text, typer.Option(help="Such as arith or gsm8k.")] = None,
    dataset: Annotated[
        Text, typer.Option(help="Your own data: file, folder or hub id, with :split.")
    ] = None,
    prompt_column: Annotated[Text, typer.Option(help="Column of the problem.")] = None,
    gold_column: Annotated[Text, typer.Option(help="Column of the gold.")] = None,
    prompt: Annotated[Text, typer.Option(help="Prompt template: name or TOML file.")] = None,
    method: Annotated[str, typer.Option(help="beam, dvts or best_of_n.")] = "beam",
    n: Annotated[int, typer.Option(help="Completions of a problem, at most.")] = 16,
    width: Annotated[int, typer.Option(help="Samples that continue a beam; divides --n.")] = 4,
    aggregation: Annotated[
        Text, typer.Option(help="How steps become one score; in a search else the last step's.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy, for --n 1.")] = 0.8,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens per completion, at most.")] = None,
    max_steps: Annotated[int, typer.Option(help="Steps per completion, at most.")] = 40,
    token_budget: Annotated[
        int | None, typer.Option(help="Tokens of a problem, after which no step begins.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="So many problems, by a fixed hash.")] = None,
    first: Annotated[int | None, typer.Option(help="The first so many problems.")] = None,
    verifier: Annotated[
        str, typer.Option(help="Name, name?key=value, or file.py:function.")
    ] = "math",
    engine: Annotated[str, typer.Option(help="What draws completions.")] = "transformers",
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    out_: Annotated[
        Path | None, typer.Option("--out", help="Run folder; again: continues it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", hidden=True)] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search for completions step by step, led by a scorer; the same command continues a run.

    stepmark prm search --model POLICY --scorer CHECKPOINT --task arith --out RUN
    """
    from stepmark.evals import SearchJob, weights_hash
    from stepmark.prm import load_scorer
    from stepmark.prm.search import SearchSettings
    from stepmark.types import Sampling
    from stepmark.verifiers import check_columns, load_verifier

    from .benchmark import load_evaluation_tasks
    from .wiring import next_run_folder

    found = _one_task(load_evaluation_tasks(task, dataset, prompt_column, gold_column, prompt))
    sampling = Sampling(
        temperature=temperature,
        max_tokens=found.max_tokens if max_tokens is None else max_tokens,
        stop=found.prompt.stop,
    )
    settings: Any = {"method": method, "n": n, "width": width, "aggregation": aggregation}
    settings |= {"max_steps": max_steps, "token_budget": token_budget, "seed": seed}
    wanted = SearchSettings(sampling=sampling, **settings)
    wanted.check()
    marks = load_verifier(verifier)
    check_columns(marks, {name for problem in found.problems for name in problem.meta})
    job = SearchJob(
        found, marks, load_scorer(scorer), wanted, model, limit, first, weights_hash(model)
    )
    _run(job, engine, out_ or next_run_folder(f"search-{found.name}"), as_json)


def _one_task(tasks: tuple[Any, ...]) -> Any:
    from stepmark.errors import ConfigError

    if len(tasks) != 1:
        names = ", ".join(task.name for task in tasks)
        raise ConfigError(f"--task names {names}; a search is of one task. Search them in turn.")
    if tasks[0].announcement:
        say(tasks[0].announcement)
    return tasks[0]


def _run(job: SearchJob, engine: str, folder: Path, as_json: bool) -> None:
    from stepmark.verifiers import close_workers

    from .benchmark import show_prompt, shown
    from .engine import engine_class
    from .golds import tell_golds

    kind, settings = engine_class(engine, loads=True)
    job.check(folder)
    tell_golds(job.verifier, ((p.id, p.gold) for p in job.task.problems), job.task.name)
    say(
        f"{job.asked.model} on {job.task.name}/{job.task.split}; scorer {job.scorer.key}, verifier "
        f"{job.verifier.key}; the run goes to {folder}"
    )
    try:
        with stoppable(same_command(folder)):
            loaded: Any = kind.load(job.model, **settings)
            try:
                with shown("searching", "problems") as tell:
                    found = job.run(
                        loaded, loaded.tokenizer, folder, on_prompt=show_prompt, on_progress=tell
                    )
            finally:
                loaded.close()
    finally:
        close_workers()
    emit(found.to_row() | {"run": str(folder)}, as_json, lambda: _tell(found, folder))


def _tell(found: SearchResult, folder: Path) -> None:
    """What the search reached, what else its candidates allow, and what it cost."""
    from stepmark.report.numbers import percent

    result = found.result
    table = grid("what is taken", "accuracy [95 %]")
    table.add_row(
        f"[bold]{plain('the candidate with the best score')}[/]",
        percent(result.accuracy, (result.low, result.high)),
    )
    for one in found.beside:
        table.add_row(plain(one.metric), percent(one.accuracy, (one.low, one.high)))
    show(table)
    say(
        f"{result.n:,} problems; {found.candidates:.1f} candidates, {found.rounds:.1f} rounds and "
        f"{found.tokens / result.n:,.0f} tokens a problem, {found.tokens:,} in all."
    )
    say(f"Everything is in {folder}. Beside another run: stepmark eval compare {folder} OTHER")
