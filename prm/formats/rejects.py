"""Why a row of a file is not converted, said so that it can be mended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stepmark.errors import Error

__all__ = ["LeftOut", "RejectReason", "Rejected"]


class RejectReason(StrEnum):
    """Why a row was rejected; formats of third parties may use words of their own."""

    NOT_JSON = "not_json"
    """The line is not UTF-8, or not one JSON object."""
    COLUMN = "column"
    """A column that the format needs is missing or holds a value of another type."""
    NO_PROBLEM = "no_problem"
    """The problem's text is empty."""
    NO_STEPS = "no_steps"
    """There is no step at all."""
    EMPTY_STEP = "empty_step"
    """A step holds nothing but blanks. Repair: ``empty_steps=drop``."""
    NO_LABELS = "no_labels"
    """No step has a label. Repair: ``unlabelled=mask`` keeps such rows, for scoring."""
    LABEL_COUNT = "label_count"
    """There are more or fewer labels than steps."""
    LABEL_VALUE = "label_value"
    """A label is no number in [0, 1], no bool and no mark of the format."""
    NOT_ALIGNED = "not_aligned"
    """The labelled text is not the input with a mark in the place of each tag."""
    STRAY_TAG = "stray_tag"
    """A tag stands in the problem, before the first step. Repair: ``stray_tags=drop``."""
    STEP_MARK = "step_mark"
    """The text that begins the first step is missing or not unique. Repair: ``step_mark=...``."""
    UNLABELLED_TAIL = "unlabelled_tail"
    """Text without a label follows the last label. Repair: ``tail=mask`` or ``tail=drop``."""
    TURN_ORDER = "turn_order"
    """The turns of a conversation are not in the order that the format has."""
    RATING = "rating"
    """A rating is not -1, 0, 1 or null."""
    CHOSEN_OUT_OF_RANGE = "chosen_out_of_range"
    """The chosen completion is not among the completions of the step."""
    NO_ACCEPTED_STEP = "no_accepted_step"
    """Steps follow one of which no completion was accepted: nobody knows what they follow."""
    ERROR_OUT_OF_RANGE = "error_out_of_range"
    """The index of an erroneous step points past the last step, or before the first one."""
    CONFLICTING_LABELS = "conflicting_labels"
    """One prefix has two estimates. Repair: ``conflicts=mean`` or ``conflicts=mask``."""
    PREFIX_WITHOUT_PROBLEM = "prefix_without_problem"
    """A solution prefix does not begin with the problem, or a tree's root is another text."""
    MASKED_BETWEEN = "masked_between"
    """The layout to write has no masked labels, and this row has one before its last label."""


class Rejected(Error, ValueError):
    """A row cannot be used: nothing of it is converted, and the rejects file says why.

    Args:
        reason: one word, counted in the manifest; a `RejectReason` or your own.
        detail: the value seen, what is allowed, and the option that repairs it, where there is one.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = str(reason)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a good row, or all of it, that the settings leave out; counted, never an error."""

    reason: str
    """One word, such as ``unrated`` or ``quality_control``."""
