"""From the marked groups of a step to its window: what backends may ask, what is checked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from stepmark.training.checkpoint import Policy
from stepmark.training.critic import Critic, critic_values
from stepmark.training.forward import reference_logps
from stepmark.training.precision import Precision
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked

from .backend import Backend, Models
from .frozen import FrozenModels
from .metrics import describe
from .sources import Drawing, is_sampled, sampled_part
from .startup import check_engine, check_first_loss, check_one_bos
from .window import Window

__all__ = ["Preparation"]

Rows = Callable[[Sequence[TrainingSample]], list[Tensor]]
"""Numbers of each sample's tokens, without gradient."""


class Preparation:
    """Lets the backend make samples of groups, and checks the first ones.

    Args:
        backend: makes the samples.
        policy: model and tokenizer that are trained.
        frozen: holds the reference, where one is needed.
        critic: says what reward to expect; None without one.
        drawing: how the groups were drawn.
        wanted: groups that a step is to learn from.
        precision: of the forward passes.
    """

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        frozen: FrozenModels,
        critic: Critic | None,
        drawing: Drawing,
        wanted: int,
        precision: Precision,
    ) -> None:
        self.backend, self.policy, self.frozen, self.critic = backend, policy, frozen, critic
        self.drawing, self.wanted, self.precision = drawing, wanted, precision
        self.budget: int = backend.config.tokens_per_microbatch
        self.is_checked = not is_sampled(backend.source)

    def models(self, step: int) -> Models:
        """What the backend may ask while it prepares a step."""
        reward = self.drawing.reward
        return Models(
            self._reference_logps(),
            self._values(),
            step,
            outcome=reward.outcome,
            process=reward.process if reward.rewards_steps else 0.0,
            verifiers={verifier.key: weight for verifier, weight in reward.terms},
            groups=self.wanted,
        )

    def window(self, step: int, groups: Sequence[tuple[Marked, ...]]) -> Window:
        """What the step learns from, and its metrics so far.

        Raises:
            EngineError: the engine's log-probs are not the policy's.
            ConfigError: the prompts do not begin with one BOS.
            RunError: the first loss is not what it must be.
        """
        sampled = sampled_part(self.backend.source, groups)
        with self.precision.forward():
            prepared = self.backend.prepare(groups, self.models(step))
            self._check_start(sampled, prepared.samples)
        measured = {**describe(sampled), **prepared.metrics}
        return Window(step, prepared.samples, measured, prepared.trains_policy)

    def _check_start(
        self, groups: Sequence[tuple[Marked, ...]], samples: Sequence[TrainingSample]
    ) -> None:
        """What can be known before anything is learnt: log-probs, and the loss at the reference."""
        model, drawing = self.policy.model, self.drawing
        if not self.is_checked:
            check_one_bos(groups, self.policy.tokenizer)
            sampler = model if self.frozen.first is None else self.frozen.first
            check_engine(sampler, groups, drawing.sampling.temperature, self.budget)
            self.is_checked = True
        if self.frozen.is_at_reference and samples:
            check_first_loss(self.backend, model, samples, drawing.temperature, self.budget)
            self.frozen.is_at_reference = False

    def _reference_logps(self) -> Rows | None:
        model: Any = self.frozen.reference
        if model is None:
            return None
        temperature = self.drawing.temperature
        return partial(reference_logps, model, temperature=temperature, token_budget=self.budget)

    def _values(self) -> Rows | None:
        if self.critic is None:
            return None
        return partial(critic_values, self.critic, token_budget=self.budget)
