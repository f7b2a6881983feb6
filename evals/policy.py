"""A policy measured on a task, in memory: what a training loop calls between steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stepmark.engines.render import render
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.store import Sample
from stepmark.tasks.selection import take
from stepmark.tasks.task import LoadedTask
from stepmark.types import Problem, Prompt, Sampling, Verdict

from .grade import check_error_share, mark
from .result import About, EvalResult, summarise

__all__ = ["about", "evaluate_policy", "prompts_of", "sample_policy"]


def evaluate_policy(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    n: int = 1,
    seed: int = 0,
    limit: int | None = None,
    model: str = "policy",
    max_error_share: float = 0.1,
) -> EvalResult:
    """What the engine's weights reach on a task; nothing is stored.

    Args:
        engine: holds the weights.
        tokenizer: the policy's.
        task: the problems and their prompt template.
        verifier: what marks.
        sampling: temperature 0 is greedy.
        n: completions per problem.
        seed: of the completions; the same for every call, so that calls can be compared in pairs.
        limit: so many problems, sampled by hash; all by default.
        model: name for the result.
        max_error_share: largest share of error verdicts.

    Raises:
        VerifierError: more error verdicts than allowed.
    """
    graded = sample_policy(
        engine, tokenizer, task, verifier, sampling, n=n, seed=seed, limit=limit, model=model
    )
    check_error_share(verifier.key, (verdict for _, verdict in graded), max_error_share)
    return summarise(about(task, verifier.key, sampling, seed, model), graded)


def sample_policy(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    n: int = 1,
    seed: int = 0,
    limit: int | None = None,
    model: str = "policy",
) -> list[tuple[Sample, Verdict]]:
    """The marked completions behind `evaluate_policy`, in the order of the problems."""
    problems = take(task.problems, limit)
    prompts = prompts_of(problems, tokenizer, task, sampling, engine)
    order = {problem.id: place for place, problem in enumerate(problems)}
    groups = sorted(
        engine.generate(prompts, n, sampling, seed), key=lambda g: order[g.prompt.problem.id]
    )
    samples = [Sample.from_rollout(r, policy=model) for group in groups for r in group.rollouts]
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


def about(task: LoadedTask, verifier_key: str, sampling: Sampling, seed: int, model: str) -> About:
    """The words that name an evaluation."""
    return About(
        model=model,
        task=task.name,
        split=task.split,
        data_hash=task.data_hash,
        prompt=task.prompt.name,
        prompt_hash=task.prompt.hash,
        verifier=verifier_key,
        greedy=sampling.temperature == 0,
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        seed=seed,
    )
