"""Cells of foreign rows, checked: a text, a list of texts, labels that are what they claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stepmark.errors import ConfigError
from stepmark.types import LabelKind

from .rejects import Rejected, RejectReason

__all__ = [
    "MARKS",
    "choice_of",
    "label_list",
    "label_of",
    "need_text",
    "optional_text",
    "other_columns",
    "text_list",
]

Row = Mapping[str, Any]
MARKS = {"+": 1.0, "-": 0.0}
"""The labels of Math-Shepherd and RLHFlow."""


def need_text(row: Row, name: str) -> str:
    """The text in a column, as it stands.

    Raises:
        Rejected: the column is missing or holds something else.
    """
    value = row.get(name)
    if not isinstance(value, str):
        seen = f"{value!r:.60}" if name in row else f"missing; there are {', '.join(row)[:120]}"
        raise Rejected(RejectReason.COLUMN, f"{name} must be text and is {seen}")
    return value


def optional_text(row: Row, name: str) -> str | None:
    """The text in a column, a number as text; None where there is neither.

    >>> optional_text({"answer": 14}, "answer"), optional_text({}, "answer")
    ('14', None)
    """
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def other_columns(row: Row, *read: str) -> dict[str, Any]:
    """The columns that were not read as something else, for ``meta``.

    >>> other_columns({"input": "...", "label": "...", "task": "GSM8K"}, "input", "label")
    {'task': 'GSM8K'}
    """
    return {key: row[key] for key in row if key not in read}


def text_list(row: Row, name: str) -> tuple[str, ...]:
    """The texts in a column, as they stand.

    Raises:
        Rejected: the column is no list, or holds something else than texts.
    """
    value = row.get(name)
    if not isinstance(value, list):
        raise Rejected(RejectReason.COLUMN, f"{name} must be a list of texts and is {value!r:.60}")
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise Rejected(RejectReason.COLUMN, f"{name}[{index}] is {text!r:.60}, not text")
    return tuple(value)


def label_list(
    value: Any, steps: int, *, marks: bool = False, estimates: bool = False
) -> tuple[tuple[float | None, ...], LabelKind]:
    """Labels and their kind: soft if any lies between 0 and 1, else hard, also as 1.0 and 0.0.

    Args:
        value: the cell: a list of bools, 0, 1, numbers in [0, 1] or null.
        steps: how many there must be.
        marks: whether ``+`` and ``-`` stand for 1 and 0.
        estimates: whether the column holds estimates, so that labels written as decimals are soft
            even where all of them are 1.0 or 0.0.

    Raises:
        Rejected: no list, another number of labels, or a label that is none of these.

    >>> label_list([True, 0, None], 3), label_list([0.9, 1.0], 2)
    (((1.0, 0.0, None), 'hard'), ((0.9, 1.0), 'soft'))
    >>> label_list([1.0, 0.0], 2)[1], label_list([1.0, 0.0], 2, estimates=True)[1]
    ('hard', 'soft')
    """
    if not isinstance(value, list):
        raise Rejected(RejectReason.COLUMN, f"labels must be a list and are {value!r:.60}")
    if len(value) != steps:
        raise Rejected(
            RejectReason.LABEL_COUNT, f"{len(value)} labels for {steps} steps; one each is needed"
        )
    labels = tuple(label_of(label, index, marks=marks) for index, label in enumerate(value))
    between = any(label not in (0, 1, None) for label in labels)
    is_soft = between or (estimates and any(isinstance(label, float) for label in value))
    return labels, "soft" if is_soft else "hard"


def label_of(value: Any, index: int, *, marks: bool = False) -> float | None:
    """One label as a number in [0, 1], or None for null.

    Raises:
        Rejected: anything else, such as NaN, -1, or the text "true".
    """
    if value is None:
        return None
    if marks and isinstance(value, str) and value.strip() in MARKS:
        return MARKS[value.strip()]
    if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
        return float(value)
    hint = "; ratings of -1, 0 and 1 belong to the format prm800k" if value == -1 else ""
    allowed = "true, false, 0, 1, a number between or null" + (" or + or -" if marks else "")
    raise Rejected(
        RejectReason.LABEL_VALUE, f"labels[{index}] is {value!r:.40}; allowed: {allowed}{hint}"
    )


def choice_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse the value of a setting that is not among the allowed ones.

    Raises:
        ConfigError: it names the setting, the value and what is allowed.
    """
    if value not in allowed:
        raise ConfigError(f"The setting {name} is {value!r}. It is one of: {', '.join(allowed)}.")
