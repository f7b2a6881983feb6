"""The table ``[model.peft]``: which small part of a model learns, where not all of it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["ALL_LINEAR", "PeftTable", "peft_of"]

ALL_LINEAR = "all-linear"
"""Stands for every linear layer but the output head."""


class PeftTable(BaseModel):
    """LoRA (arXiv:2106.09685) through peft: matrices of a low rank beside frozen linear layers.

    A layer gives ``W x + (alpha / rank) B A x``; A and B learn, in float32, and B begins at zero.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rank: int = Field(default=16, ge=1)
    """Rank of the update of every layer. RL needs little: 8 to 32 is usual."""

    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    """The update is multiplied by ``alpha / rank``. Adapters want about ten times the learning rate
    of whole models."""

    dropout: float = 0.0
    """Only 0: log-probs in training must be those of sampling, so the loop trains without it."""

    target_modules: tuple[str, ...] = (ALL_LINEAR,)
    """Linear layers that get an adapter, by the last part of their names or by whole names:
    ``"q_proj,v_proj"``. ``all-linear`` is every one but the output head."""

    @field_validator("dropout")
    @classmethod
    def _without_dropout(cls, value: float) -> float:
        if value != 0:
            raise ValueError(
                f"model.peft.dropout is {value:g}. It must be 0: with dropout, log-probs in "
                "training would not be those that completions were sampled with. Leave it out"
            )
        return value

    @field_validator("target_modules", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()]
        return value

    @model_validator(mode="after")
    def _targets_fit(self) -> Self:
        names = self.target_modules
        if not names or (ALL_LINEAR in names and len(names) > 1):
            raise ValueError(
                f"model.peft.target_modules is {list(names)}. It must be {ALL_LINEAR!r} alone, or "
                'the names of one or more linear layers, such as "q_proj,v_proj"'
            )
        return self


def peft_of(value: Any) -> Any:
    """What ``model.peft`` may be besides a table: ``"lora"`` or true is one with the defaults."""
    if value == "lora" or value is True:
        return {}
    if value is False:
        return None
    if value is None or isinstance(value, Mapping | PeftTable):
        return value
    raise ValueError(
        f'model.peft is {value!r}. It must be "lora", "none", or a table: [model.peft] with '
        f"{', '.join(PeftTable.model_fields)}"
    )
