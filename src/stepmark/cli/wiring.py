"""From a plan to a running loop: what `stepmark train` and `stepmark quickstart` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine import engine_class
from .lengths import tell_cut

if TYPE_CHECKING:
    from stepmark.config import RunConfig
    from stepmark.rl_backends import Event, TrainResult
    from stepmark.tasks import LoadedTask, PromptTemplate
    from stepmark.training.checkpoint import Policy
    from stepmark.training.precision import Precision
    from stepmark.training.trackers import Trackers

    from .plan import Plan

__all__ = ["next_run_folder", "start"]

MAY_CHANGE = frozenset({"algorithm.trackers", "reward.refresh.max_rejected"})
"""Settings that no number of a run depends on: a resumed run may have others."""

TRIED = 256
"""Prompts of a task that are rendered before anything is written: the longest ones."""


def start(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    policy: Policy | None = None,
) -> TrainResult:
    """Train as planned into a run folder; nothing is written before all parts are there and fit.

    Args:
        plan: from `make_plan`.
        out: the run folder; it is made, or continued with ``resume``.
        resume: continue the run that lies there.
        on_event: told what happens.
        policy: model and tokenizer, where they are not loaded from ``model.policy``.

    Raises:
        SetupError: the model cannot be loaded.
        ConfigError: a prompt leaves no room for its completion.
        RunError: the folder holds another run.
        Stopped: by a signal; the run can be resumed.
    """
    from stepmark.engines import load_policy
    from stepmark.rl_backends import train
    from stepmark.store import RunFolder
    from stepmark.store.run import flatten
    from stepmark.training.checkpoint import Policy
    from stepmark.training.trackers import Trackers

    config = plan.config
    tree = config.model_dump(mode="json")
    RunFolder.check(out, tree, _manifest(plan, None), resume=resume, may_change=MAY_CHANGE)
    if policy is None:
        policy = Policy(*load_policy(config.model.policy, config.model.dtype, config.model.device))
    weights = _adapted(config, policy)
    precision = _precision(config, policy)
    engine = _engine(config, policy)
    reference = _reference(plan)
    _try_prompts(plan, policy)
    manifest = _manifest(plan, _hashes(plan, weights, reference))
    trackers = Trackers(plan.backend.config.trackers, out, flatten(tree))
    with (
        RunFolder.create(out, tree, manifest, resume=resume, may_change=MAY_CHANGE) as run,
        trackers,
    ):
        return train(
            run,
            plan.backend,
            policy,
            prompts=_prompts(plan, policy),
            rollout=config.rollout,
            stop_strings=plan.stop,
            engine=engine,
            reward=plan.reward,
            reference=reference,
            evaluate=_evaluation(plan, engine),
            on_event=_both(on_event, trackers),
            precision=precision,
        )


def _both(on_event: Callable[[Event], None] | None, trackers: Trackers) -> Callable[[Event], None]:
    """Events to whoever watches, and what they measure to the trackers."""
    from stepmark.rl_backends import Evaluated, Refreshed, StepDone

    def tell(event: Event) -> None:
        if on_event is not None:
            on_event(event)
        if isinstance(event, StepDone | Refreshed):
            trackers.log(event.step, event.metrics)
        elif isinstance(event, Evaluated):
            trackers.log(event.step, {f"eval/{key}": n for key, n in event.metrics.items()})

    return tell


def _manifest(plan: Plan, weights: str | dict[str, str] | None) -> dict[str, Any]:
    from stepmark.store import build_manifest
    from stepmark.tasks.prompts import hashes_by_name

    prompts = [task.prompt for task in (*plan.tasks, *plan.eval_tasks)]
    held_out = {f"{task.name} (held out)": task.data_hash for task in plan.eval_tasks}
    return build_manifest(
        config=plan.config.model_dump(mode="json"),
        seeds={"run": plan.config.rollout.seed},
        data_hashes={task.name: task.data_hash for task in plan.tasks} | held_out,
        prompt_hash=hashes_by_name(prompts),
        weights_hash=weights,
    )


def _hashes(plan: Plan, weights: str, reference: Any) -> str | dict[str, str]:
    """The fingerprint of the policy's weights; by name where there are others beside them."""
    from stepmark.prm.model_scorer import ModelScorer
    from stepmark.rl_backends.trained_scorer import TrainedScorer
    from stepmark.training.fingerprint import fingerprint

    config = plan.config
    is_base = config.model.peft is not None
    found = {f"base {config.model.policy}" if is_base else "policy": weights}
    if reference is not None:
        found[f"reference {config.model.reference}"] = fingerprint(reference)
    for place, (scorer, _) in enumerate(plan.scorers, 1):
        if isinstance(scorer, ModelScorer | TrainedScorer):
            found[f"scorer {place}"] = scorer.key
    return found if is_base or len(found) > 1 else weights


def _engine(config: RunConfig, policy: Policy) -> Any:
    kind, settings = engine_class(config.rollout.engine)
    if config.rollout.batch_size is not None:
        settings["batch_size"] = config.rollout.batch_size
    return kind(policy.model, policy.tokenizer, **settings)


def _adapted(config: RunConfig, policy: Policy) -> str:
    """Put adapters in place where they are asked for; the fingerprint of what was loaded."""
    from stepmark.training.fingerprint import fingerprint

    weights, table = fingerprint(policy.model), config.model.peft
    if table is not None:
        from stepmark.training.lora import adapt

        adapt(policy.model, table, seed=config.rollout.seed, base=config.model.policy)
    return weights


def _precision(config: RunConfig, policy: Policy) -> Precision:
    from stepmark.training.precision import precision_of

    table = config.model
    return precision_of(policy.model, table.autocast, table.gradient_checkpointing)


def _reference(plan: Plan) -> Any:
    from stepmark.engines import load_policy

    model = plan.config.model
    if "reference" not in plan.backend.needs or model.reference == "initial":
        return None
    return load_policy(model.reference, model.dtype, model.device)[0]


def _try_prompts(plan: Plan, policy: Policy) -> None:
    """Refuse data that does not fit the model at once, not in the step that meets it.

    The longest texts of every task are rendered; they have the most tokens, or nearly.
    """
    from stepmark.engines import render

    tell_cut(plan, policy.tokenizer)
    for task in (*plan.tasks, *plan.eval_tasks):
        for problem in sorted(task.problems, key=lambda problem: -len(problem.text))[:TRIED]:
            render(
                problem,
                policy.tokenizer,
                task.prompt,
                max_tokens=plan.config.rollout.max_tokens,
                model_limit=_limit(policy),
            )


def _limit(policy: Policy) -> int | None:
    from stepmark.training.rope import room

    return room(policy.model.config)


def _prompts(plan: Plan, policy: Policy) -> Callable[[int], Any]:
    from stepmark.rl_backends import prompt_source

    rollout = plan.config.rollout
    templates: dict[str, PromptTemplate] = {task.name: task.prompt for task in plan.tasks}
    return prompt_source(
        {task.name: task.problems for task in plan.tasks},
        templates,
        policy.tokenizer,
        count=rollout.prompts_per_step,
        seed=rollout.seed,
        max_tokens=rollout.max_tokens,
        model_limit=_limit(policy),
        weights={task.name: weight for task, weight in zip(plan.tasks, plan.weights, strict=True)},
    )


def _evaluation(plan: Plan, engine: Any) -> Callable[[Policy, int], Mapping[str, float]] | None:
    """Greedy accuracy on held-out problems, as the loop takes it; None without an eval task."""
    if not plan.eval_tasks:
        return None
    from stepmark.evals import evaluate_policy
    from stepmark.types import Sampling

    def one(policy: Policy, task: LoadedTask) -> Mapping[str, float]:
        sampling = Sampling(
            temperature=0.0, max_tokens=plan.config.rollout.max_tokens, stop=task.prompt.stop
        )
        result = evaluate_policy(
            engine,
            policy.tokenizer,
            task,
            plan.verifiers[0][0],
            sampling,
            max_error_share=getattr(plan.config.algorithm, "max_error_share", 0.1),
        )
        return result.metrics()

    def evaluate(policy: Policy, step: int) -> Mapping[str, float]:
        rows: dict[str, float] = {}
        for task in plan.eval_tasks:
            prefix = "" if len(plan.eval_tasks) == 1 else f"{task.name}/"
            rows |= {f"{prefix}{name}": value for name, value in one(policy, task).items()}
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
