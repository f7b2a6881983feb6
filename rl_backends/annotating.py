"""Who says which steps of a completion are right: what a refresh of a reward model learns from."""

from __future__ import annotations

from stepmark.config.refresh_table import GENERATING
from stepmark.prm import load_scorer
from stepmark.protocols import StepScorer

__all__ = ["RULE", "labelling_scorer"]

RULE = "arithmetic"
"""The step scorer that the annotator ``rule`` stands for."""


def labelling_scorer(annotator: str | None) -> StepScorer | None:
    """The step scorer whose scores are labels; None where the annotator is none.

    Raises:
        UnknownNameError: nothing is known under that name.
    """
    if annotator in (None, "outcome", *GENERATING):
        return None
    return load_scorer(RULE if annotator == "rule" else annotator)
