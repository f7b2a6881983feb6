"""``stepmark eval run``: several models on several tasks, one run folder for each pair."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError

from .console import emit, err, progress, say
from .golds import tell_golds
from .interrupt import same_command, stoppable
from .results import show_results

if TYPE_CHECKING:
    from stepmark.evals import EvalResult
    from stepmark.protocols import OutcomeVerifier
    from stepmark.tasks import LoadedTask
    from stepmark.types import Prompt, Sampling

__all__ = ["Benchmark", "load_evaluation_tasks", "show_prompt", "shown"]


def load_evaluation_tasks(
    task: str | None,
    dataset: str | None,
    prompt_column: str | None,
    gold_column: str | None,
    prompt: str | None,
) -> tuple[LoadedTask, ...]:
    """The tasks that were named, or the user's own data as one.

    Raises:
        ConfigError: neither is named, or both.
    """
    from stepmark.tasks import load_dataset_task, load_tasks, prompt_named

    if (task is None) == (dataset is None):
        raise ConfigError(
            f"--task is {task!r} and --dataset is {dataset!r}; give one of the two, such as "
            "--task arith or --dataset FILE (stepmark eval tasks lists the tasks)."
        )
    if dataset is not None:
        found = (load_dataset_task(dataset, prompt_column, gold_column),)
    else:
        if prompt_column or gold_column:
            raise ConfigError("--prompt-column and --gold-column belong to --dataset, not --task.")
        found = load_tasks(task or "").tasks
    if prompt is None:
        return found
    template = prompt_named(prompt)
    return tuple(replace(one, prompt=template) for one in found)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What the flags of ``eval run`` ask for."""

    models: tuple[str, ...]
    tasks: tuple[LoadedTask, ...]
    verifier: str
    engine: str
    n: int
    temperature: float
    max_tokens: int | None
    limit: int | None
    first: int | None
    seed: int
    out: Path | None

    def run(self, as_json: bool) -> None:
        """Evaluate all pairs, then print the table and where everything is."""
        from stepmark.evals import table_json
        from stepmark.verifiers import close_workers

        from .wiring import next_run_folder

        verifier = self._checked_verifier()
        base = self.out or next_run_folder(f"eval-{self.tasks[0].name}")
        folders = self._folders(base)
        for task in self.tasks:
            if task.announcement:
                say(task.announcement)
        self._check_folders(verifier, folders)
        for task in self.tasks:
            tell_golds(verifier, ((p.id, p.gold) for p in task.problems), task.name)
        say(
            f"{', '.join(self.models)} on "
            f"{', '.join(f'{task.name}/{task.split}' for task in self.tasks)}; "
            f"verifier {verifier.key}; the run goes to {base}"
        )
        try:
            with stoppable(same_command(base)):
                results = [
                    result
                    for model in self.models
                    for result in self._one(model, verifier, folders)
                ]
        finally:
            close_workers()
        value = table_json(results) | {"runs": [str(folder) for folder in folders.values()]}
        emit(value, as_json, lambda: show_results(results))
        if not as_json:
            self._tell(base, folders)

    def _checked_verifier(self) -> OutcomeVerifier:
        from stepmark.verifiers import check_columns, load_verifier

        verifier = load_verifier(self.verifier)
        for task in self.tasks:
            check_columns(verifier, {name for p in task.problems for name in p.meta})
        return verifier

    def _folders(self, base: Path) -> dict[tuple[str, str], Path]:
        """The run folder of every pair: the base itself when there is one pair."""
        pairs = [(model, task.name) for model in self.models for task in self.tasks]
        if len(pairs) == 1:
            return {pairs[0]: base}
        names = {pair: f"{_file_name(pair[0])}-{_file_name(pair[1])}" for pair in pairs}
        if len(set(names.values())) < len(pairs):
            # Checkpoints of several runs share their last name: more of the path tells them apart.
            names = {pair: f"{_file_name(pair[0], 4)}-{_file_name(pair[1])}" for pair in pairs}
        if len(set(names.values())) < len(pairs):
            raise ConfigError(
                f"--model names one model twice: {', '.join(self.models)}. Name each once."
            )
        return {pair: base / name for pair, name in names.items()}

    def _sampling(self, task: LoadedTask) -> Sampling:
        from stepmark.types import Sampling

        return Sampling(
            temperature=self.temperature,
            max_tokens=task.max_tokens if self.max_tokens is None else self.max_tokens,
            stop=task.prompt.stop,
        )

    def _check_folders(
        self, verifier: OutcomeVerifier, folders: dict[tuple[str, str], Path]
    ) -> None:
        """Refuse settings, and folders of other settings, before any model is loaded."""
        from stepmark.engines.checks import check_sampling
        from stepmark.evals import check_run, weights_hash

        from .engine import engine_class

        engine_class(self.engine, loads=True)
        for model in self.models:
            for task in self.tasks:
                check_sampling(self._sampling(task), self.n)
                check_run(
                    task,
                    verifier,
                    self._sampling(task),
                    out=folders[model, task.name],
                    model=model,
                    n=self.n,
                    seed=self.seed,
                    limit=self.limit,
                    first=self.first,
                    resume=True,
                    weights=weights_hash(model),
                )

    def _one(
        self, model: str, verifier: OutcomeVerifier, folders: dict[tuple[str, str], Path]
    ) -> Iterator[EvalResult]:
        """The results of one model, which is loaded once."""
        from stepmark.evals import run, weights_hash

        from .engine import engine_class

        kind, settings = engine_class(self.engine, loads=True)
        engine: Any = kind.load(model, **settings)
        try:
            for task in self.tasks:
                with shown(f"{_file_name(model)} on {task.name}") as tell:
                    yield run(
                        engine,
                        engine.tokenizer,
                        task,
                        verifier,
                        self._sampling(task),
                        out=folders[model, task.name],
                        model=model,
                        n=self.n,
                        seed=self.seed,
                        limit=self.limit,
                        first=self.first,
                        resume=True,
                        weights=weights_hash(model),
                        on_prompt=show_prompt,
                        on_progress=tell,
                    )
        finally:
            engine.close()

    def _tell(self, base: Path, folders: dict[tuple[str, str], Path]) -> None:
        first = next(iter(folders.values()))
        say(f"Everything is in {base}. Look at what went wrong: stepmark eval show {first} --wrong")


def show_prompt(prompt: Prompt) -> None:
    """The first prompt as the model sees it: most surprises of a benchmark are visible there."""
    say(f"The first prompt ({prompt.problem.id}, {len(prompt.ids)} tokens) reads:")
    for line in prompt.text.rstrip("\n").split("\n"):
        say(f"  | {line}")


@contextmanager
def shown(what: str, unit: str = "completions") -> Iterator[Any]:
    """Progress with time left; where there is no terminal, a line for every tenth."""
    said = -1
    with progress() as bar:
        row = bar.add_task(what, total=None)

        def tell(done: int, total: int) -> None:
            nonlocal said
            bar.update(row, completed=done, total=total)
            tenth = 10 * done // max(total, 1)
            if not err.is_terminal and tenth > said:
                said = tenth
                say(f"{what}: {done} of {total} {unit}")

        yield tell


def _file_name(text: str, parts: int = 1) -> str:
    """The last parts of a path or hub id, as one name for a folder."""
    last = [part for part in Path(text).parts if part not in ("/", "..")][-parts:]
    return re.sub(r"[^\w.@+-]+", "-", "-".join(last)) or "model"
