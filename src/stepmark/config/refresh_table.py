"""The table ``[reward.refresh]``: how reward models learn while the policy moves."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .names import Names

__all__ = ["GENERATING", "RefreshLearning", "RefreshTable"]

GENERATING = ("mc", "binary")
"""Annotators that draw completions from prefixes; the others read what is there."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RefreshLearning(_Table):
    """How a process reward model of ``stepmark prm train`` learns in one refresh.

    A reward model of your own has settings of its own; nothing here reaches it.
    """

    epochs: float = Field(default=1.0, gt=0)
    """Passes over the fresh rows and the earlier ones among them."""

    rows_per_step: int = Field(default=64, ge=1)
    """Rows of one optimizer step."""

    learning_rate: float = Field(default=5e-6, gt=0)
    """Peak rate of AdamW: half of that with which ``stepmark prm train`` begins unless told."""

    tokens_per_microbatch: int = Field(default=8192, ge=1)
    """Tokens of one forward pass: memory, not results, depend on it."""

    lm_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of a next-token loss beside that of the labels, as in ``stepmark prm train``."""


class RefreshTable(_Table):
    """How scorers that are reward models learn after each outer iteration (DeepSeekMath 4.1.4).

    Without such a scorer, or with ``algorithm.outer = 1``, nothing here has an effect.
    """

    annotator: str | None = "outcome"
    """Who says which steps are right. ``mc`` draws completions from every prefix and marks them
    (Math-Shepherd, arXiv:2312.08935); ``binary`` searches for the first error so (OmegaPRM,
    arXiv:2406.06592); ``rule`` checks arithmetic; ``outcome`` labels the last step with the score
    of the first verifier and leaves the others unknown; the name of a step scorer
    (``arith-steps``) labels every step with its score; ``none`` keeps the reward models as they
    are."""

    rollouts: int = Field(default=8, ge=1)
    """Completions from each prefix, with ``mc`` and ``binary`` (Math-Shepherd 3.3: 8)."""

    max_annotated: int | None = Field(default=8, ge=1)
    """Most completions of one problem that are annotated in an iteration, those of groups with
    right and wrong ones first; all of them when ``none``."""

    token_budget: int | None = Field(default=None, ge=1)
    """Most tokens of a refresh: those that ``mc`` and ``binary`` generate for all models, by
    default no more than the iteration sampled; with the others, which generate none, those of the
    completions that are learnt from, by default as many as there are."""

    row_budget: int = Field(default=10_000, ge=1)
    """Most completions that a refresh learns from, fresh and earlier together."""

    history_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the *mixture* that comes from earlier outer iterations: 0.1 adds 100 earlier
    completions to 900 fresh ones (DeepSeekMath 4.1.4: 10 %)."""

    first_rows: Names = ()
    """Files of labelled rows that a trained reward model has learnt from before the run: its
    history begins with them. Without them the first refresh has none."""

    gate: Literal["rise", "not_fall", "any"] = "rise"
    """What a refreshed model must reach on the held-out problems of the iteration, or it is
    rejected and the model before it stays: ``rise`` wants F1 to rise for sure (the lower end of a
    paired interval above 0), ``not_fall`` no loss, ``any`` asks nothing."""

    max_old_drop: float = Field(default=0.05, ge=0, le=1)
    """Most that it may lose in F1 on the held-out rows of any earlier iteration."""

    max_rejected: int | None = Field(default=3, ge=1)
    """Refreshes of one model rejected in a row at which the run stops; it can be resumed, with
    another number here too. ``none``: never."""

    rescale: Literal["none", "moments"] = "none"
    """Whether scores of a refreshed model are moved to mean and spread of those of the model
    before it, on the same rows. GRPO normalises in the group and needs none; PPO wants
    ``moments``."""

    learning: RefreshLearning = Field(default_factory=RefreshLearning)
    """How a trained reward model learns in one refresh."""

    @property
    def generates(self) -> bool:
        """Whether annotation draws completions."""
        return self.annotator in GENERATING

    @model_validator(mode="after")
    def _a_row_fits(self) -> Self:
        if self.generates and self.token_budget is not None and self.token_budget < self.rollouts:
            raise ValueError(
                f"reward.refresh.token_budget is {self.token_budget} and reward.refresh.rollouts "
                f"is {self.rollouts}: not one prefix could be annotated, as each roll-out has a "
                f"token or more. Raise token_budget above {self.rollouts}, lower rollouts, or "
                'leave token_budget "none"'
            )
        return self
