"""The verifier `format`: a completion is built as it was asked to be, whatever its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from stepmark.errors import ConfigError
from stepmark.types import Item, Reason, Verdict

from .boxed import boxes
from .settings import Count
from .shipped import ShippedVerifier

__all__ = ["FormatVerifier"]

TAGS = re.compile(r"</?think>")
STEP = re.compile(r"^[ \t]*(?:#+[ \t]*|\*\*)?step[ \t]+\d+\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class FormatVerifier(ShippedVerifier):
    r"""Marks completions by their form: 1 when every demand is met, else 0.

    Each setting is one demand; the reason of a verdict below 1 names the first one that is not
    met. Boxes and steps are looked for after ``</think>``. The gold is not read, so that a problem
    without one is marked too. A form is easily met by a text that says nothing: reward it beside an
    answer, as in ``all(math, format)`` or ``sum(0.9*math, 0.1*format)``, never alone.

    Args:
        boxed: it has a complete ``\boxed{}`` that is not empty (``no_box``).
        one_box: it has no second box (``many_boxes``).
        ends_boxed: after the last box no words follow (``no_end``).
        steps: it has at least so many steps: lines that begin "Step 1", "Step 2" ... where there
            are any, else lines with words or digits (``few_steps``). 0 demands none.
        think: it has one ``<think>`` part, closed, with words in it, before the answer
            (``no_think``). The opening tag may stand in the prompt.
        closed: every ``<think>`` that it opens is closed (``think_open``).
        share: score the share of the demands that are met instead of 1 or 0.

    Raises:
        ConfigError: a setting has a value that is not allowed, or nothing is demanded.

    >>> from stepmark.verifiers import verify
    >>> verify(r"1 + 1 = 2, so \boxed{2}.", gold=None, verifier="format").score
    1.0
    >>> verify(r"\boxed{2} or \boxed{3}", gold=None, verifier="format?one_box=true").reason
    'many_boxes'
    >>> verify(r"\boxed{2}", gold=None, verifier="format?steps=2&share=true").score
    0.6666666666666666
    """

    name: ClassVar[str] = "format"
    version: ClassVar[int] = 1

    boxed: bool = True
    one_box: bool = False
    ends_boxed: bool = False
    steps: Count = 0
    think: bool = False
    closed: bool = True
    share: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._demands("", ""):
            raise ConfigError(
                "The verifier 'format' demands nothing: all its settings are off. "
                "Set at least one of boxed, one_box, ends_boxed, steps, think, closed."
            )

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        demands = self._demands(item.completion, item.completion.rpartition("</think>")[2])
        unmet = [name for name, met in demands.items() if not met]
        score = (len(demands) - len(unmet)) / len(demands) if self.share else float(not unmet)
        return Verdict.marked(
            score,
            unmet[0] if unmet else Reason.JUDGED,
            gold=item.problem.gold,
            rule=f"unmet: {', '.join(unmet)}" if unmet else "every demand is met",
        )

    def _demands(self, completion: str, spoken: str) -> dict[str, bool]:
        """Whether each demand that is set is met, by the reason that a failure has."""
        found = boxes(spoken) if "box" in spoken else []
        demands: dict[str, bool] = {}
        if self.closed:
            demands["think_open"] = _is_closed(completion)
        if self.think:
            demands["no_think"] = _has_thought(completion, spoken)
        if self.boxed:
            demands["no_box"] = any(box.content.strip() for box in found)
        if self.one_box:
            demands["many_boxes"] = len(found) <= 1
        if self.ends_boxed:
            after = spoken[found[-1].end :] if found else "x"
            demands["no_end"] = not any(char.isalnum() for char in after)
        if self.steps:
            demands["few_steps"] = _count_steps(spoken) >= self.steps
        return demands


def _is_closed(completion: str) -> bool:
    """Whether tags alternate; the first may close what the prompt has opened."""
    tags = [match.group() for match in TAGS.finditer(completion)]
    if not tags:
        return True
    kinds = tags if tags[0] == "<think>" else ["<think>", *tags]
    pairs = ["<think>", "</think>"] * (len(kinds) // 2)
    return kinds == pairs


def _has_thought(completion: str, spoken: str) -> bool:
    if completion.count("</think>") != 1 or completion.count("<think>") > 1:
        return False
    before = completion.partition("</think>")[0]
    opening, tag, thought = before.rpartition("<think>")
    stands_first = not opening.strip() if tag else True
    return stands_first and bool(thought.strip()) and bool(spoken.strip())


def _count_steps(spoken: str) -> int:
    named = len(STEP.findall(spoken))
    if named:
        return named
    return sum(any(char.isalnum() for char in line) for line in spoken.splitlines())
