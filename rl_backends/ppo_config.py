"""The settings of PPO, each with its paper; no torch is needed to read and check them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from .config import AlgorithmConfig

__all__ = ["PpoConfig"]

SHARED_VALUE_WEIGHT = 0.1
"""Weight of the value loss on a shared body when none is set: that of the reproduction of
RLHF with PPO in arXiv:2403.17031."""


class PpoConfig(AlgorithmConfig):
    """Settings of PPO; the defaults are for a reward that comes at the end of a completion."""

    backend: str = "ppo"
    """Name of the backend."""
    beta: float = Field(default=0.05, ge=0)
    """Reward taken per nat of divergence from the reference, on every token as it was sampled
    (``k1``; arXiv:2009.01325 has 0.05, InstructGPT 0.02). 0 needs no reference model."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """How far below 1 the importance ratio may fall: epsilon of eq. (7), 0.2 in section 6.1."""
    clip_high: float = Field(default=0.2, gt=0)
    """How far above 1 it may rise; eq. (7) has one epsilon, DAPO (arXiv:2503.14476) 0.28 here."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per token, eq. (12). Below 1, long solutions earn less than short ones."""
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """How far rewards are trusted over the critic, per token (eq. 11; arXiv:1506.02438): 1 is the
    sum of later rewards minus the value, 0.95 that of ``ppo-classic``."""
    whiten: bool = True
    """Whether the advantages of a step get mean 0 and deviation 1 over all its tokens. Where all
    completions earn the same, it stretches what is left: divergence and the critic's error."""
    step_reward: Literal["difference", "raw"] = "difference"
    """What a step earns where steps are scored: its score less that of the step before, which sums
    to the last score however many steps there are, or its score itself, which pays for steps."""
    truncated: Literal["keep", "mask", "bootstrap"] = "keep"
    """Completions that ran out of tokens: ``keep`` lets them end there with their reward, ``mask``
    leaves them out of the losses and their denominators, ``bootstrap`` takes the critic's value of
    the state behind the last token in place of the outcome."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    """Both losses: mean over all tokens of the minibatch, or over completions of their means."""
    entropy_weight: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus, per nat: c2 of eq. (9)."""
    critic: Literal["own", "shared"] = "own"
    """``own``: a copy of the policy's body under a head of one number, with an optimizer of its
    own. ``shared``: a head on the policy's body, half the memory; eq. (9) is then one loss."""
    critic_learning_rate: float = Field(default=1e-5, gt=0)
    """Peak rate of the critic's AdamW, on the schedule of ``learning_rate``: a head that starts at
    zero needs more than the policy does (InstructGPT, C.4: 9e-6)."""
    critic_warmup_steps: int = Field(default=0, ge=0)
    """First steps in which only the critic learns; the policy stays exactly as it is."""
    value_clip: float | None = Field(default=0.2, gt=0)
    """How far a value may move from the old one before its gradient stops, in reward units; from
    the first published code, not the paper. ``none`` does not clip."""
    value_weight: float | None = Field(default=None, gt=0)
    """Weight of the value loss on a shared body, c1 of eq. (9); 0.1 when absent."""

    @model_validator(mode="after")
    def _critic_fits(self) -> Self:
        if self.critic == "own" and self.value_weight is not None:
            raise ValueError(
                f'value_weight is {self.value_weight:g} and critic is "own": a critic with a body '
                "and an optimizer of its own is not weighed against the policy. "
                'Set critic_learning_rate instead, or critic to "shared".'
            )
        if 0 < self.critic_warmup_steps >= self.steps:
            raise ValueError(
                f"critic_warmup_steps is {self.critic_warmup_steps} and steps is {self.steps}: the "
                "policy would never learn. Lower critic_warmup_steps, or raise steps."
            )
        return self

    @model_validator(mode="after")
    def _entropy_is_measured(self) -> Self:
        if self.entropy_weight > 0 and not self.log_entropy:
            raise ValueError(
                f"entropy_weight is {self.entropy_weight:g} and log_entropy is false: the bonus "
                "needs the entropies. Set log_entropy to true, or entropy_weight to 0."
            )
        return self

    @property
    def value_factor(self) -> float:
        """What the value loss is multiplied by."""
        if self.critic == "own":
            return 1.0
        return SHARED_VALUE_WEIGHT if self.value_weight is None else self.value_weight
