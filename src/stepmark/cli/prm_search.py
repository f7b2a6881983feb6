"""``stepmark prm search``: completions found by a search over steps that a scorer leads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Debug, Json, emit, grid, plain, say, show
from .interrupt import same_command, stoppable

if TYPE_CHECKING:
    from stepmark.evals import SearchJob, SearchResult
    from stepmark.prm.search import SearchSettings
    from stepmark.tasks import LoadedTask

__all__ = ["search"]

Text = str | None
Model = Annotated[str, typer.Option(help="Folder or hub id of the policy.")]
Scorer = Annotated[
    str, typer.Option(help="Checkpoint, name or name?key=value, or file.py:function.")
]
Task = Annotated[Text, typer.Option(help="Such as arith or gsm8k.")]
Dataset = Annotated[Text, typer.Option(help="Your own data: file, folder or hub id, with :split.")]
PromptColumn = Annotated[Text, typer.Option(help="Column of the problem.")]
GoldColumn = Annotated[Text, typer.Option(help="Column of the gold.")]
Template = Annotated[Text, typer.Option(help="Prompt template: name or TOML file.")]
Method = Annotated[str, typer.Option(help="beam, dvts or best_of_n.")]
Count = Annotated[int, typer.Option(help="Completions of a problem, at most.")]
Width = Annotated[int, typer.Option(help="Samples that continue a beam; divides --n.")]
Aggregation = Annotated[
    Text, typer.Option(help="How steps become one score; in a search else the last step's.")
]
Temperature = Annotated[float, typer.Option(help="0 is greedy, for --n 1.")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens per completion, at most.")]
MaxSteps = Annotated[int, typer.Option(help="Steps per completion, at most.")]
Budget = Annotated[
    int | None, typer.Option(help="Tokens of a problem, after which no step begins.")
]
Limit = Annotated[int | None, typer.Option(help="So many problems, by a fixed hash.")]
First = Annotated[int | None, typer.Option(help="The first so many problems.")]
Verifier = Annotated[str, typer.Option(help="Name, name?key=value, or file.py:function.")]
EngineName = Annotated[str, typer.Option(help="What draws completions.")]
Seed = Annotated[int, typer.Option(help="Of all that is drawn.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Run folder; again: continues it.")]


def search(
    model: Model,
    scorer: Scorer,
    task: Task = None,
    dataset: Dataset = None,
    prompt_column: PromptColumn = None,
    gold_column: GoldColumn = None,
    prompt: Template = None,
    method: Method = "beam",
    n: Count = 16,
    width: Width = 4,
    aggregation: Aggregation = None,
    temperature: Temperature = 0.8,
    max_tokens: MaxTokens = None,
    max_steps: MaxSteps = 40,
    token_budget: Budget = None,
    limit: Limit = None,
    first: First = None,
    verifier: Verifier = "math",
    engine: EngineName = "transformers",
    seed: Seed = 0,
    out_: OutFolder = None,
    resume: Annotated[bool, typer.Option("--resume", hidden=True)] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search for completions step by step, led by a scorer; the same command continues a run.

    stepmark prm search --model POLICY --scorer CHECKPOINT --task arith --out RUN
    """
    from stepmark.prm.search import SearchSettings
    from stepmark.types import Sampling

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
    job = _job(found, model, scorer, verifier, wanted, (limit, first))
    _run(job, engine, out_ or next_run_folder(f"search-{found.name}"), as_json)


def _job(
    task: LoadedTask,
    model: str,
    scorer: str,
    verifier: str,
    settings: SearchSettings,
    part: tuple[int | None, int | None],
) -> SearchJob:
    """The search that the flags ask for; what cannot work is refused here."""
    from stepmark.evals import SearchJob, weights_hash
    from stepmark.prm import load_scorer
    from stepmark.verifiers import check_columns, load_verifier

    marks = load_verifier(verifier)
    check_columns(marks, {name for problem in task.problems for name in problem.meta})
    return SearchJob(task, marks, load_scorer(scorer), settings, model, *part, weights_hash(model))


def _one_task(tasks: tuple[LoadedTask, ...]) -> LoadedTask:
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
