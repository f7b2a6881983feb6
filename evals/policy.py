"""A policy measured on a task, in memory: what a training loop calls between steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from stepmark.engines.render import render
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.store import Sample
from stepmark.tasks.task import LoadedTask
from stepmark.types import Problem, Prompt, Sampling, Verdict

from .grade import check_error_share, mark
from .result import About, EvalResult, summarise
from .settings import Asked, EvalSettings

__all__ = ["about", "evaluate_policy", "prompts_of", "sample_policy"]


def evaluate_policy(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    model: str = "policy",
    **asked: Unpack[Asked],
) -> EvalResult:
    """What the engine's weights reach on a task; nothing is stored.

    Args:
        engine: holds the weights.
        tokenizer: the policy's.
        task: the problems and their prompt template.
        verifier: what marks.
        sampling: temperature 0 is greedy.
        model: name for the result.
        **asked: other fields of `EvalSettings`, such as ``n``, ``seed`` and ``limit``.

    Raises:
        VerifierError: more error verdicts than allowed.
    """
    settings = EvalSettings(sampling, model, **asked)
    graded = _sampled(engine, tokenizer, task, verifier, settings)
    check_error_share(verifier.key, (verdict for _, verdict in graded), settings.max_error_share)
    return summarise(about(task, verifier.key, settings), graded)


def sample_policy(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    model: str = "policy",
    **asked: Unpack[Asked],
) -> list[tuple[Sample, Verdict]]:
    """The marked completions behind `evaluate_policy`, in the order of the problems."""
    return _sampled(engine, tokenizer, task, verifier, EvalSettings(sampling, model, **asked))


def _sampled(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    settings: EvalSettings,
) -> list[tuple[Sample, Verdict]]:
    problems = settings.problems_of(task)
    prompts = prompts_of(problems, tokenizer, task, settings.sampling, engine)
    order = {problem.id: place for place, problem in enumerate(problems)}
    groups = sorted(
        engine.generate(prompts, settings.n, settings.sampling, settings.seed),
        key=lambda group: order[group.prompt.problem.id],
    )
    samples = [
        Sample.from_rollout(rollout, policy=settings.model)
        for group in groups
        for rollout in group.rollouts
    ]
    return list(zip(samples, mark(verifier, samples), strict=True))


def prompts_of(
    problems: Sequence[Problem],
    tokenizer: Any,
    task: LoadedTask,
    sampling: Sampling,
    engine: Engine,
) -> list[Prompt]:
    """The problems as the model sees them, with room for the completion."""

    def all_of_them() -> Iterator[Prompt]:
        room = getattr(engine, "max_length", None)
        for problem in problems:
            yield render(
                problem,
                tokenizer,
                task.prompt,
                max_tokens=sampling.max_tokens,
                model_limit=room,
            )

    return list(all_of_them())


def about(task: LoadedTask, verifier_key: str, settings: EvalSettings) -> About:
    """The words that name an evaluation."""
    return About(
        model=settings.model,
        task=task.name,
        split=task.split,
        data_hash=task.data_hash,
        prompt=task.prompt.name,
        prompt_hash=task.prompt.hash,
        verifier=verifier_key,
        greedy=settings.sampling.temperature == 0,
        temperature=settings.sampling.temperature,
        max_tokens=settings.sampling.max_tokens,
        seed=settings.seed,
    )
