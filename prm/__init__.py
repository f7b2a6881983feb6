"""Steps in, scores out."""

if __name__ == "prm":
    raise ImportError(
        "This folder is the source of stepmark.prm: import that name. "
        "For another project's package named 'prm', run outside this checkout."
    )

from .encoding import Encoded, EncodingSettings, StepEncoder
from .formats import (
    convert_file,
    formats,
    label_balance,
    labelled_steps,
    load_format,
    write_labelled_steps,
)
from .scorers import FunctionScorer, check_scorer_columns, load_scorer, scorers
from .steps import SPLITTERS, Span, Splitter, split_steps, step_texts, step_token_ends

__all__ = [
    "SPLITTERS",
    "Encoded",
    "EncodingSettings",
    "FunctionScorer",
    "Span",
    "Splitter",
    "StepEncoder",
    "check_scorer_columns",
    "convert_file",
    "formats",
    "label_balance",
    "labelled_steps",
    "load_format",
    "load_scorer",
    "scorers",
    "split_steps",
    "step_texts",
    "step_token_ends",
    "write_labelled_steps",
]
