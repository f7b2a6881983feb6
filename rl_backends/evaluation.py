"""The held-out evaluation of a run: when it is due, and what becomes of the best policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepmark.training.checkpoint import Policy
from stepmark.training.precision import Precision

from .config import AlgorithmConfig
from .events import Evaluated, Event
from .keeper import Keeper

__all__ = ["Evaluate", "Evaluation"]

Evaluate = Callable[[Policy, int], Mapping[str, float]]
"""Held-out evaluation of a policy at a step; the metrics are logged with ``eval/`` in front."""


class Evaluation:
    """Asks for the held-out metrics at the start, every ``eval_every`` steps and at the end.

    Args:
        evaluate: gives the metrics; None for a run without held-out problems.
        policy: what is evaluated.
        config: says when, and which metric marks the best policy.
        keeper: keeps the best policy.
        precision: of the forward passes.
        tell: takes the events.
    """

    def __init__(
        self,
        evaluate: Evaluate | None,
        policy: Policy,
        config: AlgorithmConfig,
        keeper: Keeper,
        precision: Precision,
        tell: Callable[[Event], None],
    ) -> None:
        self.evaluate, self.policy, self.config = evaluate, policy, config
        self.keeper, self.precision, self.tell = keeper, precision, tell

    def is_due(self, step: int) -> bool:
        """Whether the policy of this step has yet to be evaluated."""
        every, steps = self.config.eval_every, self.config.steps
        is_wanted = step in (0, steps) or (every is not None and step % every == 0)
        is_done = self.keeper.state.evaluated_at == step
        return self.evaluate is not None and is_wanted and not is_done

    def if_due(self, step: int) -> dict[str, float]:
        """The metrics with ``eval/`` in front; empty when no evaluation is due."""
        if self.evaluate is None or not self.is_due(step):
            return {}
        with self.precision.sampling():
            found = {name: float(n) for name, n in self.evaluate(self.policy, step).items()}
        self.policy.model.eval()
        is_best = self.keeper.evaluated(step, found, self.config.best_metric)
        self.tell(Evaluated(step, self.config.steps, found, is_best))
        return dict(self.keeper.state.evaluation)
