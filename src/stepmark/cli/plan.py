"""From settings to a plan: everything of a training run that can be refused without a model.

Settings, data, verifiers and engine are read and fitted together here; `wiring.start` runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepmark.config import Composed, RunConfig, run_config, validate
from stepmark.errors import ConfigError, DataError, did_you_mean, require

if TYPE_CHECKING:
    from stepmark.protocols import OutcomeVerifier, StepScorer
    from stepmark.rl_backends import Reward
    from stepmark.rl_backends.backend import Backend
    from stepmark.tasks import LoadedTask

__all__ = ["Plan", "make_plan", "read_settings"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A run whose settings, data and verifiers were read and fit together; no model is loaded."""

    config: RunConfig
    backend: Backend
    tasks: tuple[LoadedTask, ...]
    weights: tuple[float, ...]
    eval_tasks: tuple[LoadedTask, ...]
    verifiers: tuple[tuple[OutcomeVerifier, float], ...]
    stop: tuple[str, ...] = ()
    """Strings that end a sampled completion: those of the tasks' prompt template."""
    notes: tuple[str, ...] = ()
    """What deserves a look before the run is believed, one line each."""
    scorers: tuple[tuple[StepScorer, float], ...] = ()

    @property
    def reward(self) -> Reward:
        """What the run rewards."""
        from stepmark.rl_backends import Reward

        table = self.config.reward
        return Reward(
            self.verifiers,
            self.scorers,
            table.outcome,
            table.process,
            table.refresh,
            table.largest_single_share,
        )

    @property
    def announcements(self) -> list[str]:
        """What was guessed about the data, one line each."""
        lines = [task.announcement for task in (*self.tasks, *self.eval_tasks)]
        return list(dict.fromkeys(line for line in lines if line))


def make_plan(composed: Composed) -> Plan:
    """The run that these settings describe.

    Raises:
        ConfigError: settings that are unknown, out of range, or cannot work together.
        DataError: the data cannot be read, or lacks what the backend or a verifier needs.
        UnknownNameError: no backend, task, verifier or engine is called that.
    """
    from stepmark.training.trackers import check_trackers

    from .adapters import check_adapters
    from .engine import engine_class

    config, backend = read_settings(composed)
    of_adapters = check_adapters(config)
    engine_class(config.rollout.engine)
    check_trackers(backend.config.trackers)
    source = backend.source
    samples = source in ("rollouts", "self-play")
    tasks, weights = _training_tasks(config, needs_gold=source == "rollouts")
    if source in ("demonstrations", "self-play"):
        _check_solutions(tasks, is_dataset=config.data.dataset is not None)
    elif source == "preferences":
        tasks = _preferences(config, tasks)
    eval_tasks, of_tasks = _held_out(config, tasks)
    notes = (*of_adapters, *of_tasks)
    _check_best_metric(config, eval_tasks)
    marked = (*tasks, *eval_tasks) if samples else eval_tasks
    verifiers = _verifiers(config, marked)
    scorers = _scorers(config, tasks) if samples else ()
    stop = _stop_strings(tasks) if samples else ()
    return Plan(config, backend, tasks, weights, eval_tasks, verifiers, stop, notes, scorers)


def read_settings(composed: Composed) -> tuple[RunConfig, Backend]:
    """The checked settings and the backend that they choose."""
    require("torch", extra="train", purpose="Training")
    from stepmark.rl_backends import backends, check

    name = composed.tree.get("algorithm", {}).get("backend", "grpo")
    kind: Any = backends.load(name)
    config = validate(run_config(kind.Config), composed.tree, origin=composed.origin_of)
    check(config, kind)
    return config, kind(config.algorithm)


def _prompt(config: RunConfig, task: LoadedTask) -> LoadedTask:
    from dataclasses import replace

    from stepmark.tasks import prompt_named

    chosen = config.data.prompt
    return task if chosen is None else replace(task, prompt=prompt_named(chosen))


def _training_tasks(
    config: RunConfig, *, needs_gold: bool
) -> tuple[tuple[LoadedTask, ...], tuple[float, ...]]:
    from stepmark.tasks import load_dataset_task, load_tasks

    data = config.data
    if data.dataset is not None:
        task = load_dataset_task(
            data.dataset,
            data.prompt_column,
            data.gold_column,
            data.solution_column,
            needs_gold=needs_gold,
        )
        return (_prompt(config, task),), (1.0,)
    if not data.task:
        raise ConfigError(
            "There is nothing to train on: data.task and data.dataset are both absent. "
            "Give --task gsm8k (stepmark eval tasks lists them), or --dataset FILE."
        )
    found = load_tasks(list(data.task), data.split, weights=data.weights)
    return tuple(_prompt(config, task) for task in found.tasks), found.weights


def _check_solutions(tasks: Sequence[LoadedTask], *, is_dataset: bool) -> None:
    own = "solution under [columns] of its file"
    how = "--set data.solution_column=COLUMN" if is_dataset else own
    for task in tasks:
        lacking = [problem for problem in task.problems if not problem.solution]
        if lacking:
            columns = ", ".join(_columns(lacking[:1])) or "none"
            raise DataError(
                f"{len(lacking)} of {len(task.problems)} problems of {task.name!r} have no worked "
                f"solution to learn from, first {lacking[0].id!r} (columns: {columns}). Name its "
                f"column with {how}, or choose --backend grpo."
            )


def _preferences(config: RunConfig, tasks: Sequence[LoadedTask]) -> tuple[LoadedTask, ...]:
    """The tasks with the chosen and rejected completion of every problem found and checked."""
    from dataclasses import replace

    from stepmark.rl_backends import preference_problems

    data = config.data
    columns = (data.chosen_column, data.rejected_column)
    return tuple(
        replace(
            task,
            problems=preference_problems(task.problems, data.dataset or task.name, *columns),
        )
        for task in tasks
    )


def _held_out(
    config: RunConfig, trained: Sequence[LoadedTask]
) -> tuple[tuple[LoadedTask, ...], list[str]]:
    """The problems of the held-out evaluation, and notes on what they are not.

    Tasks that were named are taken as they are; otherwise the tasks that are trained on give their
    other split, unless it is missing or the same problems.
    """
    from dataclasses import replace

    from stepmark.tasks import load_dataset_task, load_tasks, take

    data = config.data
    notes: list[str] = []
    if data.eval_dataset is not None:
        found = [load_dataset_task(data.eval_dataset, data.prompt_column, data.gold_column)]
    elif data.eval_task:
        found = list(load_tasks(list(data.eval_task), data.eval_split).tasks)
    elif data.dataset is not None:
        found = []
    else:
        found = list(_other_splits(config, trained, notes))
    limited = [
        replace(task, problems=take(task.problems, limit=data.eval_limit))
        for task in (_prompt(config, task) for task in found)
    ]
    seen = {problem.text for task in trained for problem in task.problems}
    for task in limited:
        if shared := sum(problem.text in seen for problem in task.problems):
            notes.append(
                f"{shared} of {len(task.problems)} held-out problems of {task.name!r} are also "
                "trained on: their accuracy says nothing about new problems."
            )
    return tuple(limited), notes


def _other_splits(
    config: RunConfig, trained: Sequence[LoadedTask], notes: list[str]
) -> Iterable[LoadedTask]:
    from stepmark.tasks import load_tasks

    split = config.data.eval_split
    for name, own in zip(config.data.task, trained, strict=True):
        try:
            task = load_tasks([name], split).tasks[0]
        except (ConfigError, DataError) as error:
            if "eval_split" in config.data.model_fields_set:
                raise
            notes.append(f"no held-out problems of {own.name!r}: {error}")
            continue
        if {p.text for p in task.problems} & {p.text for p in own.problems}:
            notes.append(
                f"no held-out problems of {own.name!r}: its split {split!r} is what is trained on."
            )
            continue
        yield task


def _check_best_metric(config: RunConfig, eval_tasks: Sequence[LoadedTask]) -> None:
    from stepmark.evals import METRICS

    wanted = getattr(config.algorithm, "best_metric", "accuracy")
    known = list(METRICS)
    if len(eval_tasks) > 1:
        known = ["accuracy", *(f"{task.name}/{name}" for task in eval_tasks for name in METRICS)]
    if eval_tasks and wanted not in known:
        raise ConfigError(
            f"algorithm.best_metric is {wanted!r}, which the held-out evaluation does not give. "
            f"{did_you_mean(wanted, known)} It gives: {', '.join(known)}."
        )


def _verifiers(
    config: RunConfig, tasks: Sequence[LoadedTask]
) -> tuple[tuple[OutcomeVerifier, float], ...]:
    from stepmark.rl_backends import Reward
    from stepmark.verifiers import check_columns, load_verifier

    loaded = [(load_verifier(share.reference), share.weight) for share in config.reward.verifiers]
    for verifier, _ in loaded:
        for task in tasks:
            check_columns(verifier, _columns(task.problems))
    reward = config.reward
    rewards_steps = reward.process > 0 and any(share.weight > 0 for share in reward.scorers)
    if all(weight == 0 for _, weight in loaded) and not rewards_steps:
        raise ConfigError(
            "Every weight in reward.verifiers is 0, so that nothing is rewarded. Give at least one "
            "verifier a weight other than 0 (1.0 is usual)."
        )
    if reward.outcome == 0 and not rewards_steps:
        names = ", ".join(share.name for share in reward.scorers) or "none"
        raise ConfigError(
            f"reward.outcome is 0 and no steps are rewarded (reward.scorers: {names}; "
            f"reward.process: {reward.process:g}), so that nothing is. Name a step scorer with a "
            "weight, --scorer arith-steps, or set reward.outcome above 0."
        )
    return Reward(tuple(loaded)).terms


def _scorers(
    config: RunConfig, tasks: Sequence[LoadedTask]
) -> tuple[tuple[StepScorer, float], ...]:
    """The step scorers, those that learn ready for it, and a check of the one that labels steps."""
    from stepmark.prm import check_scorer_columns, load_scorer
    from stepmark.rl_backends import Reward

    from .refreshing import labeller_for, learning

    loaded = [(load_scorer(share.reference), share.weight) for share in config.reward.scorers]
    ready = [(learning(scorer, config), weight) for scorer, weight in loaded]
    asked = [scorer for scorer, _ in ready]
    labeller = labeller_for(asked, config)
    for scorer in asked if labeller is None else [*asked, labeller]:
        for task in tasks:
            check_scorer_columns(scorer, _columns(task.problems), task.name)
    return Reward(scorers=tuple(ready)).scorers


def _columns(problems: Iterable[object]) -> list[str]:
    return sorted({key for problem in problems for key in getattr(problem, "meta", ())})


def _stop_strings(tasks: Sequence[LoadedTask]) -> tuple[str, ...]:
    first = tasks[0]
    for task in tasks:
        if set(task.prompt.stop) != set(first.prompt.stop):
            raise ConfigError(
                f"The prompts of {first.name!r} and {task.name!r} end completions at different "
                f"strings: {list(first.prompt.stop)} and {list(task.prompt.stop)}. All tasks of "
                "one run share them: set one prompt with --set data.prompt=NAME_OR_FILE."
            )
    return first.prompt.stop
