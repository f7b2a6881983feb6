"""The settings of GRPO, each with its paper; no torch is needed to read and check them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from .config import AlgorithmConfig

__all__ = ["GrpoConfig"]


class GrpoConfig(AlgorithmConfig):
    """Settings of GRPO; the defaults are DeepSeekMath's, section 4.2, where it says."""

    backend: str = "grpo"
    """Name of the backend."""
    beta: float = Field(default=0.04, ge=0)
    """Weight of the divergence from the reference, in eq. (3). 0 needs no reference model."""
    kl: Literal["k1", "k2", "k3", "k3-unbiased"] = "k3"
    """Estimator of the divergence: ``k3`` is eq. (4), ``k3-unbiased`` has the gradient of the true
    divergence (DeepSeek-V3.2, arXiv:2512.02556), ``k2`` too, with a biased value. ``k1`` only in
    the reward: as a loss its gradient is zero in expectation."""
    kl_in: Literal["loss", "reward"] = "loss"
    """``loss`` is eq. (3). ``reward`` takes beta times the sum of the completion's divergences
    from its reward before rewards are compared, as in RLOO (arXiv:2402.14740)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """How far below 1 the importance ratio may fall (PPO's epsilon)."""
    clip_high: float = Field(default=0.2, gt=0)
    """How far above 1 it may rise; DAPO (arXiv:2503.14476) takes 0.28."""
    ratio: Literal["token", "sequence"] = "token"
    """Importance ratio of each token, eq. (3), or one per completion: the geometric mean of its
    tokens' (GSPO, arXiv:2507.18071, with clip ranges near 3e-4)."""
    baseline: Literal["mean", "leave-one-out"] = "mean"
    """What is subtracted from a reward: the group's mean (4.1.2), or that of the others in the
    group (``leave-one-out``: RLOO, arXiv:2402.14740, with ``scale = "none"``)."""
    scale: Literal["sample", "population", "none"] = "sample"
    """What the centred rewards are divided by; ``none`` is Dr. GRPO (arXiv:2503.20783)."""
    scale_over: Literal["group", "batch"] = "group"
    """Whose deviation divides: the group's (4.1.2), or that of all rewards of the step
    (Lite PPO, arXiv:2508.08221)."""
    rewards: Literal["summed", "decoupled"] = "summed"
    """Several verifiers: their weighted sum is normalised, or each is normalised in its group, and
    the weighted sum of those over the step (GDPO, arXiv:2601.05242)."""
    flat_groups: Literal["keep", "drop", "resample"] = "keep"
    """Groups whose rewards are all equal: ``keep`` lets the divergence act on them, ``drop`` takes
    them out of the loss and its denominators, ``resample`` also draws further problems until
    ``rollout.prompts_per_step`` groups are useful (DAPO, arXiv:2503.14476, section 3.2)."""
    resample_rounds: int = Field(default=3, ge=1)
    """Most times that ``resample`` draws ``rollout.prompts_per_step`` further problems."""
    aggregation: Literal["sequence-mean", "token-mean", "sequence-sum", "constant"] = (
        "sequence-mean"
    )
    """How token losses become one number; ``sequence-mean`` is eq. (3)."""
    constant_length: int | None = Field(default=None, ge=1)
    """Length, in tokens, that ``aggregation = "constant"`` divides by (Dr. GRPO)."""
    truncated: Literal["keep", "mask"] = "keep"
    """Completions that ran out of tokens: trained on like others, or left out of the loss and its
    denominators (their rewards still shape the group's mean; DAPO's overlong filtering)."""

    @model_validator(mode="after")
    def _constant_has_length(self) -> Self:
        if self.aggregation == "constant" and self.constant_length is None:
            raise ValueError(
                'aggregation is "constant" and constant_length is none: '
                "set constant_length to the tokens to divide by; rollout.max_tokens is usual."
            )
        return self

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.kl == "k1" and self.kl_in == "loss" and self.beta > 0:
            raise ValueError(
                'kl is "k1" and kl_in is "loss": its gradient is zero in expectation and pulls '
                'nowhere. Set kl_in to "reward", or kl to "k3".'
            )
        if self.scale_over == "batch" and self.scale == "none":
            raise ValueError(
                'scale_over is "batch" and scale is "none": nothing is divided. '
                'Set scale to "sample", or scale_over to "group".'
            )
        if self.rewards == "decoupled" and (
            self.scale_over != "group" or self.baseline != "mean" or self.kl_in == "reward"
        ):
            raise ValueError(
                'rewards is "decoupled", which normalises each reward over its group\'s mean: '
                'scale_over must be "group", baseline "mean" and kl_in "loss".'
            )
        return self
