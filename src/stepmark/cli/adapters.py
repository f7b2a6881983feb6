"""What can be said of ``model.peft`` before a model is loaded: refusals, and a word on the rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmark.errors import require

if TYPE_CHECKING:
    from stepmark.config import RunConfig

__all__ = ["check_adapters"]

SMALL_RATE = 1e-5
"""Below it a run with adapters hardly moves: they want about ten times the rate of whole models,
1e-6 for RL (Schulman and others, LoRA Without Regret, 2025)."""


def check_adapters(config: RunConfig) -> list[str]:
    """Notes on the settings of adapters, one line each; none without adapters.

    Raises:
        SetupError: peft is not installed.
        ConfigError: the model in a folder has no layer of a name that is asked for.
    """
    if config.model.peft is None:
        return []
    require("peft", extra="peft", purpose="LoRA (model.peft)")
    from stepmark.training.memory import shape_of

    shape_of(config.model.policy, config.model.peft)
    rate = getattr(config.algorithm, "learning_rate", SMALL_RATE)
    if rate >= SMALL_RATE:
        return []
    return [
        f"algorithm.learning_rate is {rate:g}, a rate for whole models; adapters want about ten "
        f"times as much: --set algorithm.learning_rate={10 * rate:g}"
    ]
