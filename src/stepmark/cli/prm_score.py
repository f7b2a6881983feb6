"""``stepmark prm score``: scores of steps for the completions of a run, or the rows of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import ConfigError, SetupError

from .console import Debug, Json, emit, grid, plain, progress, say, show, warn
from .interrupt import same_command, stoppable

if TYPE_CHECKING:
    from stepmark.prm.score_runs import Scoring
    from stepmark.protocols import StepScorer
    from stepmark.store import RunFolder

__all__ = ["score"]

Place = Annotated[
    str, typer.Argument(metavar="RUN_OR_FILE", help="A run folder, or rows with problem and steps.")
]
Scorer = Annotated[
    str, typer.Option(help="Checkpoint, name or name?key=value, or file.py:function.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="PATH.jsonl", help="Of a file: where its rows go.")
]
Aggregation = Annotated[
    str | None, typer.Option(help="Of a file: how steps become one score; else the scorer's own.")
]
Tokenizer = Annotated[
    str | None, typer.Option(help="Of a run: folder or hub id of the policy's tokenizer.")
]


def score(
    place: Place,
    scorer: Scorer,
    out: Out = None,
    aggregation: Aggregation = None,
    tokenizer: Tokenizer = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Score the steps of a run, into its sample store, or of a file; 3 if some have no scores.

    stepmark prm score RUN --scorer CHECKPOINT
    """
    from stepmark.prm import load_scorer

    is_run = (Path(place) / "config.toml").is_file()
    if is_run and (out or aggregation):
        flag = "--out" if out else "--aggregation"
        raise ConfigError(
            f"{flag} is for files: scores of a run go into its sample store, step by step. Leave "
            f"it out, and choose an aggregation in: stepmark eval table {place} --metrics "
            "bon@8:SCORER:min"
        )
    loaded = load_scorer(scorer)
    say(f"scorer: {loaded.key}")
    if is_run:
        return _run(Path(place), loaded, tokenizer, as_json)
    target = out or Path(place).with_name(f"{Path(place).name.split('.')[0]}.scored.jsonl")
    return _file(place, target, loaded, aggregation, as_json)


def _run(place: Path, scorer: StepScorer, tokenizer: str | None, as_json: bool) -> int:
    from stepmark.prm.score_runs import score_run
    from stepmark.store import RunFolder

    folder = RunFolder.open(place)
    known = _tokenizer(folder, tokenizer)
    with stoppable(_again()), folder, _bar(as_json) as on_progress:
        found = score_run(folder, scorer, known, on_progress)
    emit(found.to_row() | {"run": str(place)}, as_json, lambda: _tell(found, f"in {place}/samples"))
    if not found.solutions and not found.failed:
        warn("the run holds no completions yet.")
    return _tell_failures(found)


def _tokenizer(folder: RunFolder, named: str | None) -> Any:
    """The policy's tokenizer, for the ends of steps; None where an evaluation has none to load."""
    from stepmark.engines.loading import load_tokenizer

    config = folder.config()
    model: Any = config.get("model", "")
    if isinstance(model, dict) and "policy" not in model:
        raise ConfigError(
            f"{str(folder.path)!r} is a run that trained a reward model; it holds no completions "
            "to score. Name a run of stepmark train or stepmark eval run, or a file of rows."
        )
    place = named or (model.get("policy", "") if isinstance(model, dict) else str(model))
    try:
        return load_tokenizer(place)
    except SetupError:
        if named or config.get("kind") != "eval":
            raise
        say(
            f"note: the tokenizer of {place!r} cannot be loaded, so the tokens in which steps end "
            "are left out; --tokenizer PLACE names it. Scores do not need it."
        )
        return None


def _file(place: str, out: Path, scorer: StepScorer, aggregation: str | None, as_json: bool) -> int:
    from stepmark.prm.score_runs import score_file

    if out.suffix != ".jsonl":
        raise ConfigError(f"--out is {str(out)!r}; its name must end in .jsonl.")
    if out.resolve() == Path(place).resolve():
        raise ConfigError(f"--out is {str(out)!r}, the file that is read. Choose another name.")
    how = aggregation or getattr(scorer, "aggregation", "min")
    with stoppable(same_command(out)), _bar(as_json) as on_progress:
        found = score_file(place, out, scorer, how, on_progress)
    value = found.to_row() | {"file": place, "out": str(out), "aggregation": how}
    emit(value, as_json, lambda: _tell(found, f"to {out}, solutions by {how}"))
    if found.rejected:
        word = "row holds" if found.rejected == 1 else "rows hold"
        warn(f"{found.rejected:,} {word} no solution. The first, {found.first_reject}.")
    failed = _tell_failures(found)
    return 3 if found.rejected else failed


def _tell_failures(found: Scoring) -> int:
    """The exit code: 3 where the scorer failed on solutions, which is said."""
    if found.failed:
        warn(
            f"the scorer failed on {found.failed:,} solutions; nothing is kept of them. The same "
            "command asks for these alone."
        )
    return 3 if found.failed else 0


def _again() -> str:
    import shlex
    import sys

    return shlex.join(["stepmark", *sys.argv[1:]])


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[int, int], None]]:
    with progress(is_quiet=as_json) as bar:
        task = bar.add_task("scoring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _tell(found: Scoring, where: str) -> None:
    table = grid()
    mean = "-" if found.mean is None else f"{found.mean:.4f}"
    unscored = f", {found.unscored:,} without a score" if found.unscored else ""
    for name, value in (
        ("scorer", found.scorer),
        ("solutions", f"{found.solutions:,} ({found.fresh:,} scored now), {where}"),
        ("steps", f"{found.steps:,}{unscored}; mean score {mean}"),
    ):
        table.add_row(f"[bold]{name}[/]", plain(value))
    show(table)
