"""The settings of DPO and its family, each with its paper; no torch is needed to read them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from .config import AlgorithmConfig

__all__ = ["DpoConfig", "OnlineDpoConfig", "SpinConfig"]


class DpoConfig(AlgorithmConfig):
    """Settings of DPO on the preferences of a data set (arXiv:2305.18290)."""

    backend: str = "dpo"
    """Name of the backend."""
    loss: Literal["sigmoid", "ipo-sum", "ipo-mean"] = "sigmoid"
    """``sigmoid`` is DPO, eq. (7). ``ipo-sum`` is IPO (arXiv:2310.12036), eq. (17), on sums of
    log-probs; ``ipo-mean`` the same on means per token, as TRL has it. For both, beta is tau."""
    beta: float = Field(default=0.1, gt=0)
    """How closely the policy is held to the reference, eq. (3); section 6 of the paper takes 0.1.
    IPO's tau: the margin of log-ratios that it aims at is 1 / (2 tau) nats."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the pairs taken to be the wrong way round (conservative DPO; Mitchell, 2023)."""
    reference_free: bool = False
    """Take the reference to be uniform: no second model, and nothing that holds the policy to the
    first one."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Peak rate of AdamW; the paper's appendix B has 1e-6 (of RMSprop)."""
    log_entropy: bool = False
    """Whether the entropy of the policy at each token is measured."""

    @model_validator(mode="after")
    def _smoothing_suits_the_loss(self) -> Self:
        if self.label_smoothing and self.loss != "sigmoid":
            raise ValueError(
                f'label_smoothing is {self.label_smoothing:g} and loss is "{self.loss}", which has '
                'no such form. Set label_smoothing to 0, or loss to "sigmoid".'
            )
        return self


class OnlineDpoConfig(DpoConfig):
    """Settings of DPO on pairs of the policy's own marked completions.

    With ``outer`` above 1 it is iterative: the reference becomes the policy at the start of each
    outer iteration.
    """

    backend: str = "online-dpo"
    """Name of the backend."""
    pairing: Literal["right-over-wrong", "margin", "best-over-worst"] = "right-over-wrong"
    """``right-over-wrong`` goes by the first verifier's score; the other two go by the reward, so
    that every verifier counts with its weight. ``margin`` takes each completion over those that are
    worse by ``margin`` or more; ``best-over-worst`` one pair per problem (iterative reasoning
    preference optimisation, arXiv:2404.19733, takes right over wrong)."""
    right_from: float = Field(default=1.0, gt=0, le=1)
    """Least score of a right completion, for ``right-over-wrong``."""
    margin: float = Field(default=0.0, ge=0)
    """Least difference of the two; equals are never paired. In units of the reward, or of the
    score for ``right-over-wrong``."""
    pairs_per_problem: int | None = Field(default=4, ge=1)
    """Most pairs of one problem in a step: the widest, spread over its completions. None: all."""


class SpinConfig(DpoConfig):
    """Settings of self-play fine-tuning (SPIN, arXiv:2401.01335)."""

    backend: str = "spin"
    """Name of the backend."""
    online: bool = False
    """Who plays the opponent: the policy as the outer iteration began, which is the reference too
    (Algorithm 1 of the paper), or the policy of the moment."""
