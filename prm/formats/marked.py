"""Texts in which problem and steps are glued together: where they are taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from stepmark.errors import ConfigError
from stepmark.types import LabelledSteps

from .cells import choice_of
from .rejects import Rejected, RejectReason

__all__ = ["StepMark", "Tail", "labelled_head"]

Labels = tuple[float | None, ...]


class StepMark:
    """Where the first step begins in a text that starts with the problem.

    Args:
        marks: the text that begins the first step; several to be tried in order, divided by ``|``.

    Raises:
        ConfigError: no text is given.
    """

    def __init__(self, marks: str) -> None:
        self.marks = [mark for mark in str(marks).split("|") if mark]
        if not self.marks:
            raise ConfigError(
                f"The setting step_mark is {marks!r}; give the text that begins the first step, "
                "such as 'Step 1:'."
            )

    def find(self, text: str) -> int:
        """Index of the mark that stands in the text exactly once.

        Raises:
            Rejected: none of the marks does.
        """
        for mark in self.marks:
            if text.count(mark) == 1:
                return text.index(mark)
        seen = ", ".join(f"{mark!r} {text.count(mark)} times" for mark in self.marks)
        raise Rejected(
            RejectReason.STEP_MARK,
            f"the text holds {seen}; it must hold it once, where the first step begins. "
            "step_mark='Step 1:|step 1:' tries several",
        )


class Tail:
    """What becomes of text after the last label: the row is rejected, the text masked or dropped.

    Args:
        choice: ``reject``, ``mask`` or ``drop``.

    Raises:
        ConfigError: another word.
    """

    def __init__(self, choice: str) -> None:
        choice_of("tail", choice, ("reject", "mask", "drop"))
        self.choice = choice

    def apply(
        self, steps: Sequence[str], labels: Labels, tail: str
    ) -> tuple[tuple[str, ...], Labels]:
        """Steps and labels, with the tail as a step without a label where it is kept.

        Raises:
            Rejected: there is a tail, and no option says what to do with it.
        """
        text = tail.strip()
        if not text or self.choice == "drop":
            return tuple(steps), labels
        if self.choice == "mask":
            return (*steps, text), (*labels, None)
        raise Rejected(
            RejectReason.UNLABELLED_TAIL,
            f"text without a label follows the last one: {text[:40]!r}; tail=mask keeps it as a "
            "step without label, tail=drop leaves it out",
        )


def labelled_head(labelled: LabelledSteps, layout: str) -> tuple[tuple[str, ...], list[float]]:
    """Steps and labels up to the last label, for a layout that knows no masked ones.

    Steps after the last label are cut off: nothing is said of them.

    Raises:
        Rejected: no step has a label, or one before the last label has none.
    """
    labels = list(labelled.labels)
    while labels and labels[-1] is None:
        labels.pop()
    if not labels:
        raise Rejected(RejectReason.NO_LABELS, f"no step has a label, and {layout} needs one each")
    known = [label for label in labels if label is not None]
    if len(known) < len(labels):
        raise Rejected(
            RejectReason.MASKED_BETWEEN,
            f"step {labels.index(None) + 1} has no label and a later one has; {layout} would take "
            "it for false",
        )
    return labelled.steps[: len(labels)], known
