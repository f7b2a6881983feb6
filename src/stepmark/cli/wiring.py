"""From settings to a running loop: what `stepmark train` and `stepmark quickstart` share.

Everything that can be refused without a model is refused before one is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepmark.config import Composed, RunConfig, run_config, validate
from stepmark.errors import ConfigError, require

if TYPE_CHECKING:
    from stepmark.protocols import OutcomeVerifier
    from stepmark.rl_backends import Event, TrainResult
    from stepmark.rl_backends.backend import Backend
    from stepmark.tasks import LoadedTask, PromptTemplate
    from stepmark.training.checkpoint import Policy

__all__ = ["Plan", "make_plan", "next_run_folder", "start"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A run whose settings, data and verifiers were read and fit together; no model is loaded."""

    config: RunConfig
    backend: Backend
    tasks: tuple[LoadedTask, ...]
    weights: tuple[float, ...]
    eval_tasks: tuple[LoadedTask, ...]
    verifiers: tuple[tuple[OutcomeVerifier, float], ...]

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
        UnknownNameError: no backend, task or verifier is called that.
    """
    config, backend = read_settings(composed)
    tasks, weights = _training_tasks(config)
    eval_tasks = _eval_tasks(config)
    verifiers = _verifiers(config, (*tasks, *eval_tasks))
    return Plan(config, backend, tasks, weights, eval_tasks, verifiers)


def read_settings(composed: Composed) -> tuple[RunConfig, Backend]:
    """The checked settings and the backend that they choose."""
    require("torch", extra="train", purpose="Training")
    from stepmark.rl_backends import backends, check

    name = composed.tree.get("algorithm", {}).get("backend", "grpo")
    kind = backends.load(name)
    config = validate(run_config(kind.Config), composed.tree, origin=composed.origin_of)
    check(config, kind)
    return config, kind(config.algorithm)


def _prompt(config: RunConfig, task: LoadedTask) -> LoadedTask:
    from dataclasses import replace

    from stepmark.tasks import prompt_named

    chosen = config.data.prompt
    return task if chosen is None else replace(task, prompt=prompt_named(chosen))


def _training_tasks(config: RunConfig) -> tuple[tuple[LoadedTask, ...], tuple[float, ...]]:
    from stepmark.tasks import load_dataset_task, load_tasks

    data = config.data
    if data.dataset is not None:
        task = load_dataset_task(
            data.dataset, data.prompt_column, data.gold_column, data.solution_column
        )
        return (_prompt(config, task),), (1.0,)
    if not data.task:
        raise ConfigError(
            "There is nothing to train on: data.task and data.dataset are both absent. "
            "Give --task gsm8k (stepmark eval tasks lists them), or --dataset FILE."
        )
    found = load_tasks(list(data.task), data.split, weights=data.weights)
    return tuple(_prompt(config, task) for task in found.tasks), found.weights


def _eval_tasks(config: RunConfig) -> tuple[LoadedTask, ...]:
    """The held-out problems; none where they would be those that are trained on."""
    from dataclasses import replace

    from stepmark.registry import Reference
    from stepmark.tasks import load_dataset_task, load_task, take

    data = config.data
    names = data.eval_task or tuple(
        name for name in data.task if "path" not in Reference.parse(name).settings
    )
    if data.eval_dataset is not None:
        found = [load_dataset_task(data.eval_dataset, data.prompt_column, data.gold_column)]
    else:
        found = [load_task(name.partition(":")[0], data.eval_split) for name in names]
    return tuple(
        replace(task, problems=take(task.problems, limit=data.eval_limit))
        for task in (_prompt(config, task) for task in found)
    )


def _verifiers(
    config: RunConfig, tasks: Sequence[LoadedTask]
) -> tuple[tuple[OutcomeVerifier, float], ...]:
    from stepmark.verifiers import check_columns, load_verifier

    loaded = [(load_verifier(share.reference), share.weight) for share in config.reward.verifiers]
    for verifier, _ in loaded:
        for task in tasks:
            check_columns(verifier, sorted({key for p in task.problems for key in p.meta}))
    return tuple(loaded)


def start(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    policy: Policy | None = None,
) -> TrainResult:
    """Train as planned into a run folder.

    Args:
        plan: from `make_plan`.
        out: the run folder; it is made, or continued with ``resume``.
        resume: continue the run that lies there.
        on_event: told what happens.
        policy: model and tokenizer, where they are not loaded from ``model.policy``.

    Raises:
        SetupError: the model cannot be loaded.
        RunError: the folder holds another run.
        Stopped: by a signal; the run can be resumed.
    """
    from stepmark.engines import load_policy
    from stepmark.rl_backends import Reward, train
    from stepmark.store import RunFolder, build_manifest
    from stepmark.training.checkpoint import Policy, fingerprint

    config = plan.config
    if policy is None:
        policy = Policy(*load_policy(config.model.policy, config.model.dtype, config.model.device))
    engine = _engine(config, policy)
    tree = config.model_dump(mode="json")
    manifest = build_manifest(
        config=tree,
        seeds={"run": config.rollout.seed},
        data_hashes={task.name: task.data_hash for task in (*plan.tasks, *plan.eval_tasks)},
        prompt_hash=",".join(task.prompt.hash for task in plan.tasks),
        weights_hash=fingerprint(policy.model),
    )
    run = RunFolder.create(out, tree, manifest, resume=resume)
    with run:
        return train(
            run,
            plan.backend,
            policy,
            prompts=_prompts(plan, policy),
            rollout=config.rollout,
            engine=engine,
            reward=Reward(plan.verifiers),
            reference=_reference(plan),
            evaluate=_evaluation(plan, engine),
            on_event=on_event,
        )


def _engine(config: RunConfig, policy: Policy) -> Any:
    from stepmark.engines import engines
    from stepmark.registry import Reference

    asked = Reference.parse(config.rollout.engine)
    settings = dict(asked.settings)
    if config.rollout.batch_size is not None:
        settings["batch_size"] = config.rollout.batch_size
    return engines.load(asked.name)(policy.model, policy.tokenizer, **settings)


def _reference(plan: Plan) -> Any:
    from stepmark.engines import load_policy

    model = plan.config.model
    if "reference" not in plan.backend.needs or model.reference == "initial":
        return None
    return load_policy(model.reference, model.dtype, model.device)[0]


def _prompts(plan: Plan, policy: Policy) -> Callable[[int], Any]:
    from stepmark.rl_backends import prompt_source

    rollout = plan.config.rollout
    templates: dict[str, PromptTemplate] = {task.name: task.prompt for task in plan.tasks}
    limit = getattr(policy.model.config, "max_position_embeddings", None)
    return prompt_source(
        {task.name: task.problems for task in plan.tasks},
        templates,
        policy.tokenizer,
        count=rollout.prompts_per_step,
        seed=rollout.seed,
        max_tokens=rollout.max_tokens,
        model_limit=limit,
        weights={task.name: weight for task, weight in zip(plan.tasks, plan.weights, strict=True)},
    )


def _evaluation(plan: Plan, engine: Any) -> Callable[[Policy, int], Mapping[str, float]] | None:
    """Greedy accuracy on held-out problems, as the loop takes it; None without an eval task."""
    if not plan.eval_tasks:
        return None
    from stepmark.evals import evaluate_policy
    from stepmark.types import Sampling

    verifier = plan.verifiers[0][0]
    sampling = Sampling(temperature=0.0, max_tokens=plan.config.rollout.max_tokens)

    def evaluate(policy: Policy, step: int) -> Mapping[str, float]:
        rows: dict[str, float] = {}
        for task in plan.eval_tasks:
            result = evaluate_policy(engine, policy.tokenizer, task, verifier, sampling)
            prefix = "" if len(plan.eval_tasks) == 1 else f"{task.name}/"
            rows |= {f"{prefix}{name}": value for name, value in result.metrics().items()}
        if len(plan.eval_tasks) > 1:
            each = [rows[f"{task.name}/accuracy"] for task in plan.eval_tasks]
            rows["accuracy"] = sum(each) / len(each)
        return rows

    return evaluate


def next_run_folder(stem: str, parent: Path = Path("runs")) -> Path:
    """The first free name ``runs/STEM-N``, N from 1."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"
