"""Where the steps of a solution are: character spans, and the tokens in which they end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from stepmark.errors import ConfigError, UnknownNameError

__all__ = [
    "SPLITTERS",
    "Span",
    "Splitter",
    "solution_steps",
    "split_steps",
    "step_texts",
    "step_token_ends",
]

Span = tuple[int, int]
"""First character of a step, and the one after its last."""
Splitter = Callable[[str], tuple[Span, ...]]

_NEWLINE = re.compile(r"\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*(?:\n[ \t\r]*)*\n")
_STEP_N = re.compile(r"^[ \t]*(?:#+[ \t]*|\*\*)?step[ \t]+\d+\b", re.IGNORECASE | re.MULTILINE)


def newline(text: str) -> tuple[Span, ...]:
    r"""One step a line that holds more than spaces; a step keeps the newline that ends it.

    >>> newline("1 + 2 = 3\n\n3 + 4 = 7\n")
    ((0, 11), (11, 21))
    """
    return _spans(text, (found.end() for found in _NEWLINE.finditer(text)))


def blank_line(text: str) -> tuple[Span, ...]:
    r"""One step a paragraph; a step keeps the blank lines that end it.

    >>> blank_line("First\nhalf.\n\nSecond half.")
    ((0, 13), (13, 25))
    """
    return _spans(text, (found.end() for found in _BLANK_LINE.finditer(text)))


def step_n(text: str) -> tuple[Span, ...]:
    r"""One step from each line that starts with ``Step 1``, ``step 2:``, ``**Step 3`` and so on.

    What stands before the first of them belongs to it.

    >>> step_n("Think.\nStep 1: add.\nStep 2: answer.")
    ((0, 20), (20, 35))
    """
    starts = [found.start() for found in _STEP_N.finditer(text)]
    return _spans(text, starts[1:])


def _spans(text: str, cuts: Iterable[int]) -> tuple[Span, ...]:
    """Spans between cuts; one without words joins the step before it, or the first real one."""
    if not text:
        return ()
    edges = [0, *(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    spans: list[Span] = []
    for start, end in pairwise(edges):
        earlier_is_blank = bool(spans) and not text[spans[-1][0] : spans[-1][1]].strip()
        if spans and (earlier_is_blank or not text[start:end].strip()):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return tuple(spans)


SPLITTERS: dict[str, Splitter] = {"newline": newline, "blank_line": blank_line, "step_n": step_n}
"""The known splitters by name."""


def split_steps(text: str, splitter: str = "newline") -> tuple[Span, ...]:
    """The steps of a text as spans that cover it: joined, their texts are the text again.

    An empty text has no steps; steps without words are merged into their neighbour.

    Raises:
        UnknownNameError: there is no such splitter.
    """
    if splitter not in SPLITTERS:
        raise UnknownNameError.of("step splitter", splitter, SPLITTERS)
    return SPLITTERS[splitter](text)


def step_texts(text: str, spans: Sequence[Span]) -> tuple[str, ...]:
    """The text of each step, without the blanks around it."""
    return tuple(text[start:end].strip() for start, end in spans)


def solution_steps(steps: Sequence[str], splitter: str = "newline") -> tuple[str, ...]:
    r"""A whole solution divided anew: equal texts give equal steps, however they were divided.

    Steps without words are left out; there is none where no step has words.

    Raises:
        UnknownNameError: there is no such splitter.

    >>> solution_steps(["3 + 4\n= 7", " ", "so 7"]) == solution_steps(["3 + 4\n= 7\n\nso 7"])
    True
    """
    text = ("\n\n" if splitter == "blank_line" else "\n").join(steps)
    return tuple(filter(None, step_texts(text, split_steps(text, splitter))))


def step_token_ends(spans: Sequence[Span], token_offsets: Sequence[Span]) -> tuple[int, ...]:
    """Index of the last token of each step, increasing; the last one is the last token.

    A token belongs to the step in which its first character stands, so one that reaches across a
    border ends the earlier step. Tokens without characters (end tokens, parts of one character)
    belong to the step before them. Two steps that share all their tokens would not have an end
    each: that is refused, never merged in silence.

    Args:
        spans: character spans of the steps, in order.
        token_offsets: character span of every sampled token in the same text, in order.

    Raises:
        ConfigError: a step in which no token starts, or no tokens.
    """
    if not spans:
        return ()
    ends = [-1] * len(spans)
    step = 0
    for index, (start, end) in enumerate(token_offsets):
        if end > start:
            while step + 1 < len(spans) and start >= spans[step][1]:
                step += 1
        ends[step] = index
    ends[-1] = len(token_offsets) - 1 if ends[-1] >= 0 else -1
    if missing := [number for number, end in enumerate(ends) if end < 0]:
        raise ConfigError(
            f"No token starts in step {missing[0] + 1} of {len(spans)} ({len(token_offsets)} "
            "tokens); offsets must be those of this text. Use a splitter with longer steps."
        )
    return tuple(ends)
