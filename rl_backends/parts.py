"""The parts of one run, made to fit each other; `stepmark.rl_backends.loop` says what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepmark.config.tables import RolloutTable
from stepmark.store.run import RunFolder
from stepmark.training.checkpoint import Policy, fingerprint
from stepmark.training.precision import Precision
from stepmark.types import Prompt

from .annotating import Completer
from .backend import Backend
from .card import Card
from .collect import Collector
from .evaluation import Evaluate, Evaluation
from .events import Event
from .frozen import FrozenModels, check_reference
from .keeper import Keeper
from .optimizers import critic_of, optimizer_of
from .preparation import Preparation
from .refresh import Refresher
from .rollouts import Rollouts
from .sources import Drawing
from .update import Updater

__all__ = ["Parts", "parts_of"]

FOLDER = "reward_models"
"""Of a run: what its reward models keep there."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop calls, in the order of Algorithm 1."""

    refresher: Refresher
    frozen: FrozenModels
    rollouts: Rollouts
    preparation: Preparation
    updater: Updater
    evaluation: Evaluation
    keeper: Keeper


def parts_of(
    run: RunFolder,
    backend: Backend,
    policy: Policy,
    drawing: Drawing,
    *,
    prompts: Callable[[int], Sequence[Prompt]],
    rollout: RolloutTable,
    reference: Any,
    evaluate: Evaluate | None,
    precision: Precision,
    stop: Callable[[], None],
    tell: Callable[[Event], None],
) -> Parts:
    """Everything of a run that has a state or calls a model.

    Args:
        run: see `train`, also for the arguments that are not named here.
        backend: with its settings.
        policy: model and tokenizer as the run began.
        drawing: what groups are drawn with.
        prompts: of a step.
        rollout: group size, temperature, length and seed.
        reference: a model of the user's, or None.
        evaluate: gives held-out metrics.
        precision: of the forward passes.
        stop: called between groups; it raises when a stop was asked for.
        tell: takes the events.

    Raises:
        ConfigError: a reference that cannot become the policy, where it must.
    """
    check_reference(backend, policy.model, reference)
    config, model, tokenizer, seed = backend.config, policy.model, policy.tokenizer, rollout.seed
    reward, temperature = drawing.reward, drawing.temperature
    collector = Collector(
        drawing.engine, reward, run.samples, drawing.sampling, drawing.group_size, seed, stop,
        tokenizer,
    )  # fmt: skip
    optimizer = optimizer_of(model, config, config.learning_rate)
    pair = critic_of(backend, model)
    critic, own = pair or (None, None)
    model.eval()
    frozen = FrozenModels(backend.needs, model, reference)
    given = "" if reference is None else fingerprint(reference)
    card = Card(run, policy, drawing.sampling)
    keeper = Keeper(
        run.checkpoints, policy, optimizer, config.keep_checkpoints, tell, pair, card, given
    )
    completer = _completer(run, backend, policy, drawing, seed, precision)
    return Parts(
        Refresher(reward, run.samples, seed, run.path / FOLDER, completer),
        frozen,
        Rollouts(backend, model, prompts, collector, frozen, precision, tell),
        Preparation(backend, policy, frozen, critic, drawing, rollout.prompts_per_step, precision),
        Updater(model, optimizer, backend, temperature, seed, critic, own, precision),
        Evaluation(evaluate, policy, config, keeper, precision, tell),
        keeper,
    )


def _completer(
    run: RunFolder,
    backend: Backend,
    policy: Policy,
    drawing: Drawing,
    seed: int,
    precision: Precision,
) -> Completer | None:
    """What draws roll-outs where reward models learn from them; None elsewhere."""
    reward = drawing.reward
    if not reward.refresh.generates or backend.source != "rollouts":
        return None
    return Completer(
        drawing.engine,
        policy.tokenizer,
        reward.terms[0][0],
        drawing.sampling,
        run.path / FOLDER,
        reward.refresh,
        seed,
        lambda: fingerprint(policy.model),
        precision.sampling,
        backend.config.max_error_share,
    )
