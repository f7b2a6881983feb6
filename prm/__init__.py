"""Steps in, scores out."""

from typing import TYPE_CHECKING, Any

if __name__ == "prm":
    raise ImportError(
        "This folder is the source of stepmark.prm: import that name. "
        "For another project's package named 'prm', run outside this checkout."
    )

from .aggregation import AGGREGATIONS, aggregate
from .encoding import Encoded, EncodingSettings, StepEncoder
from .formats import (
    convert_file,
    formats,
    label_balance,
    labelled_steps,
    load_format,
    write_labelled_steps,
)
from .scorers import (
    FunctionScorer,
    check_scorer_columns,
    load_scorer,
    scorers,
    scores_whole,
)
from .steps import SPLITTERS, Span, Splitter, split_steps, step_texts, step_token_ends

if TYPE_CHECKING:
    from .checkpoint import PrmCard, load_step_model, save_step_model
    from .loading import Base, base_model
    from .model import StepModel
    from .outcome import OutcomeModel, load_outcome_model
    from .outcome_scorer import OutcomeScorer
    from .scorer import PrmScorer

__all__ = [
    "AGGREGATIONS",
    "SPLITTERS",
    "Base",
    "Encoded",
    "EncodingSettings",
    "FunctionScorer",
    "OutcomeModel",
    "OutcomeScorer",
    "PrmCard",
    "PrmScorer",
    "Span",
    "Splitter",
    "StepEncoder",
    "StepModel",
    "aggregate",
    "base_model",
    "check_scorer_columns",
    "convert_file",
    "formats",
    "label_balance",
    "labelled_steps",
    "load_format",
    "load_outcome_model",
    "load_scorer",
    "load_step_model",
    "save_step_model",
    "scorers",
    "scores_whole",
    "split_steps",
    "step_texts",
    "step_token_ends",
    "write_labelled_steps",
]

_HOMES = {
    "Base": "loading",
    "OutcomeModel": "outcome",
    "OutcomeScorer": "outcome_scorer",
    "PrmCard": "checkpoint",
    "PrmScorer": "scorer",
    "StepModel": "model",
    "base_model": "loading",
    "load_outcome_model": "outcome",
    "load_step_model": "checkpoint",
    "save_step_model": "checkpoint",
}
"""What needs torch is loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from stepmark.errors import require

    require("torch", extra="train", purpose="A reward model")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
