"""The settings of the table ``[algorithm]`` that all backends share.

No torch here: configurations are read, checked and printed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stepmark.config.tables import Names, RolloutTable, RunConfig
from stepmark.errors import ConfigError

if TYPE_CHECKING:
    from .backend import Backend

__all__ = ["AlgorithmConfig", "check", "check_rollout"]


SMALLEST_RATE_BFLOAT16 = 1e-4
"""bfloat16 keeps 8 bits: a weight of 0.02 cannot change by less than about 8e-5, and an Adam update
is about the learning rate."""


class AlgorithmConfig(BaseModel):
    """What every backend reads: how long, how fast, how often to look and to save."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    backend: str = "grpo"
    """Name of the backend: ``grpo``, ``sft``, or one of yours."""
    steps: int = Field(default=100, ge=0)
    """Rollout batches in all, over all outer iterations."""
    outer: int = Field(default=1, ge=1)
    """Outer iterations I of DeepSeekMath's Algorithm 1: the steps are divided into that many parts,
    and the reference becomes the policy at the start of each. 1 keeps the first policy."""
    mu: int = Field(default=1, ge=1)
    """Passes over each rollout batch (mu of Algorithm 1; DeepSeekMath uses 1)."""
    minibatches: int = Field(default=1, ge=1)
    """Optimizer steps per pass; groups are never divided. At most one per group."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Peak rate of AdamW. 1e-6 is DeepSeekMath's for GRPO."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the rate after the warm-up: unchanged, or down to 0 just after the last step."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from near 0 to its peak."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay of matrices (AdamW); norms and biases have none."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the gradient's running mean."""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the squared gradient's running mean."""
    adam_epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of the squared gradient's mean."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient; longer ones are shortened to it."""
    loss_limit: float = Field(default=1e6, gt=0)
    """Largest absolute loss of an optimizer step that is learnt from. Beyond it the run stops with
    the minibatch saved for replay, as it does for a loss that is not a number."""
    tokens_per_microbatch: int = Field(default=8192, ge=1)
    """Prompt and completion tokens in one forward pass: memory, not results, depend on it."""
    eval_every: int | None = Field(default=None, ge=1)
    """Held-out evaluation every so many steps, besides first and last. None: only those."""
    save_every: int | None = Field(default=50, ge=1)
    """A resumable checkpoint every so many steps: the most that a crash can cost. None: only at
    the end, and when stopped."""
    save_every_minibatches: int | None = Field(default=None, ge=1)
    """A resumable checkpoint inside of a step, every so many of its minibatches over all ``mu``
    passes: for steps that take long. None: only between steps, and when stopped."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """How many of the newest numbered checkpoints stay on the disk."""
    best_metric: str = "accuracy"
    """Metric of the held-out evaluation whose highest value marks ``checkpoints/best``."""
    max_error_share: float = Field(default=0.1, ge=0, le=1)
    """Largest share of error verdicts in a step; above it the run stops with the first one."""
    log_entropy: bool = True
    """Whether the entropy of the policy at each sampled token is measured."""
    trackers: Names = ()
    """Where metrics go besides ``metrics.jsonl``: ``tensorboard``, ``trackio``, ``wandb``, or a
    class of yours, ``file.py:Class``. May change when a run is resumed."""

    def iteration_of(self, step: int) -> int:
        """Which outer iteration a step, from 1, belongs to, from 0."""
        return (step - 1) * self.outer // self.steps

    def steps_of(self, iteration: int) -> list[int]:
        """The steps of an outer iteration."""
        every = range(1, self.steps + 1)
        return [step for step in every if self.iteration_of(step) == iteration]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.outer > max(self.steps, 1):
            raise ValueError(
                f"outer is {self.outer} and steps is {self.steps}: every outer iteration needs "
                "a step. Raise steps, or lower outer."
            )
        if self.schedule != "constant" and self.warmup_steps > self.steps:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps} and steps is {self.steps}: the warm-up must "
                "end before the run does."
            )
        return self


def check(run: RunConfig, backend: type[Backend]) -> None:
    """Refuse settings of two tables that cannot work together, before any model is loaded.

    Raises:
        ConfigError: the message names both keys, the value seen, and what to set.
    """
    if isinstance(run.algorithm, AlgorithmConfig):
        rate = run.algorithm.learning_rate
        learns_bfloat16 = run.model.dtype == "bfloat16" and run.model.peft is None
        if learns_bfloat16 and rate < SMALLEST_RATE_BFLOAT16:
            raise ConfigError(
                f'model.dtype is "bfloat16" and algorithm.learning_rate is {rate:g}: updates this '
                "small are rounded away and the weights would not move. "
                'Set model.dtype = "float32", or model.peft = "lora", whose adapters are float32.'
            )
        check_rollout(run.algorithm, run.rollout, backend)


def check_rollout(
    algorithm: AlgorithmConfig, rollout: RolloutTable, backend: type[Backend] | Backend
) -> None:
    """What `check` does, for callers that have the tables by themselves.

    Raises:
        ConfigError: see `check`.
    """
    least = backend.min_group_size
    if backend.source == "rollouts" and rollout.group_size < least:
        raise ConfigError(
            f"rollout.group_size is {rollout.group_size}, but the backend "
            f"{algorithm.backend!r} (algorithm.backend) compares completions of one problem "
            f"with each other. Set rollout.group_size to {least} "
            'or more (8 is usual), or choose algorithm.backend = "sft".'
        )
    if algorithm.minibatches > rollout.prompts_per_step:
        raise ConfigError(
            f"algorithm.minibatches is {algorithm.minibatches}, but rollout.prompts_per_step is "
            f"{rollout.prompts_per_step} and groups are never divided. "
            f"Set algorithm.minibatches to {rollout.prompts_per_step} or less."
        )
