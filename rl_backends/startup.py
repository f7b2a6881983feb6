"""What is checked on the first completions, before anything is learnt from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmark.errors import EngineError
from stepmark.training.forward import reference_logps
from stepmark.training.sample import TrainingSample
from stepmark.training.tolerances import LOGPS_BFLOAT16, LOGPS_FLOAT32
from stepmark.types import Marked

__all__ = ["ROLLOUTS", "check_engine"]

ROLLOUTS = 8
"""How many completions are compared: enough to see a wrong temperature or a shifted token."""


def check_engine(
    model: Any, groups: Sequence[tuple[Marked, ...]], temperature: float, token_budget: int
) -> None:
    """The sampler's log-probs must be the policy's, because they are used as the old ones.

    Raises:
        EngineError: they differ by more than the table of tolerances allows.
    """
    rollouts = [row.rollout for group in groups for row in group][:ROLLOUTS]
    if not rollouts:
        return
    samples = [TrainingSample(rollout.prompt.ids, rollout.ids) for rollout in rollouts]
    ours = reference_logps(model, samples, temperature, token_budget)
    gaps = [
        abs(float(own) - sampled)
        for row, rollout in zip(ours, rollouts, strict=True)
        for own, sampled in zip(row, rollout.logps, strict=True)
    ]
    is_float32 = "float32" in str(model.dtype)
    gap = max(gaps) if is_float32 else sum(gaps) / len(gaps)
    allowed = LOGPS_FLOAT32 if is_float32 else LOGPS_BFLOAT16
    if not gap <= allowed:
        raise EngineError(
            f"The engine's log-probs differ from the policy's by {gap:.2g} nats on the first "
            f"completions; {allowed:g} is allowed. Ratios would be wrong: check that the "
            "engine holds the same weights, temperature and end tokens."
        )
