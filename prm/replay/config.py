"""The settings of a refresh: five tables, checked before any model is loaded. No torch here."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from stepmark.config.tables import Table
from stepmark.prm.train_config import BaseTable, StepLoss

__all__ = [
    "TABLES",
    "GateTable",
    "RefreshConfig",
    "RefreshLearning",
    "RefreshModel",
    "ReplayTable",
]

TABLES = ("replay", "gate", "model", "data", "algorithm")
"""The tables that may be set."""


class ReplayTable(Table):
    """How much of the history is learnt from again."""

    share: float = Field(default=0.1, ge=0, le=1)
    """Of earlier rows (DeepSeekMath 4.1.4: 10 %); of what, ``reading`` says."""

    reading: Literal["mixture", "history"] = "mixture"
    """``mixture``: 0.1 adds 667 earlier rows to 6,000 new ones; ``history``: it draws one in ten
    of the earlier rows."""

    weight: Literal["proportional", "recency", "uniform-round"] = "proportional"
    """Which earlier rounds are drawn from more; see `stepmark.prm.replay.draw`."""

    error_share: tuple[float, float] | None = (0.35, 0.65)
    """Bounds of the share of rows with an error; new rows of the larger kind are left out until it
    lies between them. ``none`` leaves all."""

    seed: int = Field(default=0, ge=0)
    """Of the draw."""

    @model_validator(mode="after")
    def _a_share_of_a_mixture(self) -> Self:
        if self.share == 1 and self.reading == "mixture":
            raise ValueError(
                'replay.share is 1 and replay.reading is "mixture": no new row would have room. '
                'For all history set replay.reading = "history", or lower replay.share'
            )
        return self


class GateTable(Table):
    """What a refreshed model must reach to take the place of the one before it."""

    max_old_drop: float = Field(default=0.05, ge=0, le=1)
    """Most that F1 may fall on the held-out rows of any earlier round. With a replay of 10 % a good
    refresh loses 0.02 to 0.05."""

    new: Literal["rise", "not_fall", "any"] = "rise"
    """On the held-out rows of the new round: ``rise`` wants the lower bound of the paired interval
    above 0; ``not_fall`` no loss of F1; ``any`` asks nothing, for rounds whose held-out rows are
    too few to tell."""

    level: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""

    resamples: int = Field(default=2000, ge=100)
    """Draws of the paired bootstrap over problems."""

    threshold: float = Field(default=0.5, ge=0, le=1)
    """Below it a step is called wrong."""

    held_out_limit: int = Field(default=1000, ge=1)
    """Most held-out rows of a round, chosen by hash."""


class RefreshModel(BaseTable):
    """How the reward model is held while it learns further; ``base`` is the one to refresh."""

    base: str = ""
    """Folder of the reward model; a refresh fills it in."""


class LabelTable(Table):
    """Which labels are learnt from; as in ``[data]`` of ``stepmark prm train``."""

    steps: Literal["all", "last"] = "all"
    """Labels that the loss covers: all of a row, or that of its last step only."""

    after_error: Literal["mask", "wrong", "keep"] = "mask"
    """Steps behind the first wrong one: without a label, all wrong, or as the data have them."""

    labels: Literal["as_given", "hard"] = "as_given"
    """``hard`` makes 1 of every label above ``hard_above``, and 0 of the others."""

    hard_above: float = Field(default=0.0, ge=0, lt=1)
    """With ``labels = "hard"``."""

    max_tokens: int | None = Field(default=None, ge=8)
    """Longest row in training, where that is less than the reward model's own limit."""


class RefreshLearning(StepLoss):
    """The loss and the optimizer of a refresh; see ``[algorithm]`` of ``stepmark prm train``."""

    learning_rate: float = Field(default=5e-6, gt=0)
    """Peak rate of AdamW: half of that with which ``stepmark prm train`` begins unless told."""

    eval_every: int | None = Field(default=50, ge=1)
    """Steps between two looks at the held-out rows, old and new."""

    best_metric: str = "minus_loss"
    """Whose highest value marks the model that is kept: the *sum* of the losses on old and on new
    held-out rows, with its sign turned."""

    patience: int | None = Field(default=3, ge=1)
    """Looks without a better value after which learning stops."""


class RefreshConfig(Table):
    """Everything that a refresh depends on besides buffer and reward model."""

    replay: ReplayTable = Field(default_factory=ReplayTable)
    """The draw."""

    gate: GateTable = Field(default_factory=GateTable)
    """Acceptance."""

    model: RefreshModel = Field(default_factory=RefreshModel)
    """The reward model in training."""

    data: LabelTable = Field(default_factory=LabelTable)
    """The labels."""

    algorithm: RefreshLearning = Field(default_factory=RefreshLearning)
    """Loss and optimizer."""

    def settings(self) -> dict[str, Any]:
        """The settings as plain values."""
        return self.model_dump(mode="json")
