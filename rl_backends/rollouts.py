"""The groups of a step: drawn by the weights that sample, marked, and fit to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from stepmark.training.checkpoint import fingerprint
from stepmark.training.precision import Precision
from stepmark.types import Marked, Prompt

from .backend import Backend, Models
from .collect import Collector
from .events import Event, StepsCounted
from .frozen import FrozenModels
from .resample import drawn_further
from .reward import check_errors
from .scoring import check_scored, check_step_counts
from .sources import is_sampled

__all__ = ["Rollouts"]


class Rollouts:
    """What a step learns from, in whole groups.

    Args:
        backend: says where completions come from, and whether more groups are needed.
        policy: the model that is trained.
        prompts: the rendered problems of a step, from 1; a pure function.
        collector: draws and marks.
        frozen: holds the weights that sample, where those are not the policy's.
        precision: of the forward passes.
        tell: takes the events.
    """

    def __init__(
        self,
        backend: Backend,
        policy: Any,
        prompts: Callable[[int], Sequence[Prompt]],
        collector: Collector,
        frozen: FrozenModels,
        precision: Precision,
        tell: Callable[[Event], None],
    ) -> None:
        self.backend, self.policy, self.prompts = backend, policy, prompts
        self.collector, self.frozen = collector, frozen
        self.precision, self.tell = precision, tell

    def groups(self, step: int, models: Models) -> list[tuple[Marked, ...]]:
        """The marked groups of a step; those in the store are not drawn or marked again.

        Raises:
            VerifierError: more error verdicts than ``max_error_share``.
            ConfigError: scores are rewarded, and no first completion has one, or most of them are
                one step to a scorer of steps.
        """
        share = self.backend.config.max_error_share
        groups = self._drawn(step, share, models)
        check_errors(groups, share, step)
        reward = self.collector.reward
        if step == 1 and reward.rewards_steps:
            check_scored(groups)
        if step == 1 and reward.finds_steps:
            counts = check_step_counts(groups, reward.largest_single_share)
            if counts is not None:
                self.tell(StepsCounted(1, counts))
        return groups

    def _drawn(self, step: int, share: float, models: Models) -> list[tuple[Marked, ...]]:
        """Drawn from the policy, or from the one that the outer iteration began with."""
        policy, version = self.policy, step - 1
        with (
            self.frozen.sampling(policy, self.collector.engine, version),
            self.precision.sampling(),
        ):
            name = fingerprint(policy) if is_sampled(self.backend.source) else ""
            draw = partial(self.collector.collect, step, policy=name, max_error_share=share)
            groups = draw(self.prompts(step))
            return drawn_further(self.backend, groups, self.prompts, draw, models)
