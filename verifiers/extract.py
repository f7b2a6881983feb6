r"""Where the answer of a completion stands, and by which rule it was found.

The rules, first that fires: the last complete box; ``####``; a phrase ("the answer is", "Answer:",
a line that starts ``A:``); a short text as a whole, if all of it reads as mathematics; the last
formula between maths delimiters; the last number, which is the last resort. A strict policy stops
after ``####``. The order is that of the graders in use (boxes before phrases before numbers); every
scan is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .boxed import OPENING, Box, boxes
from .limits import TooLarge, Unreadable
from .phrases import FORMULA, LETTER, NUMBER, after_phrase, last_phrase, restated_phrase
from .policy import LENIENT, STRICT, Policy
from .reading import parse

__all__ = ["Extraction", "Method", "extract", "extract_gold", "short_whole"]

Method = Literal[
    "boxed", "hash", "phrase", "whole", "option", "last_maths", "last_number", "none", "gold_text"
]

LAST_CHARS = 20_000
"""The last resort reads this much of the end: a longer text has said nothing for long enough."""

WHOLE_CHARS = 120
"""A text as short as this, all of it mathematics, is its own answer."""
WORDS = re.compile(
    r"(?<![\\A-Za-z])(?!sqrt|sin|cos|tan|log|exp|and|pi\b)[A-Za-z]{3,}|[^\x00-\x7f]{3,}|\n\s*\S"
)
OPEN_BOX = re.compile(OPENING.pattern + r"\{")
SAID = re.compile(
    # A word before a number is said of it and is no factor: "so 4", "an 8".
    r"(?<![\\A-Za-z])(?!(?:and|or|sqrt|sin|cos|tan|log|ln|lg|exp|pi)\b)[A-Za-z]+[ \t]+\d"
    # Short words beside other words or numbers: "It is -2", "5 it is". Beside signs they are
    # products of variables: "v + at".
    r"|(?<![\\A-Za-z])(?:am|an|as|at|be|by|do|he|if|in|is|it|me|my|no|of|oh|ok|on|so|to|up|us|we)"
    r"[,:]?[ \t]+(?:[-−+$]{0,2}[.\d]|[A-Za-z$\\])"
    r"|[A-Za-z\d][ \t]+(?:am|be|do|is|it|me|no|so|to|us|we)\b",
    re.IGNORECASE,
)
HASH = re.compile(r"####[ \t]*([^\n]*)")
CONNECTOR = re.compile(
    r"(?:[\s$,;&]|\\[,;: \]\[()]|\\q?quad|\\text\s*\{\s*(?:and|or)\s*\}|\\approx|≈"
    r"|\b(?:[A-Za-z]{2,20}\s+)?(?:and|or)\b|\b[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=)+"
)
LISTED = re.compile(
    r"\d[*_$)\]}]{0,3}(?:[\s,;|?/*_$(\[]|\b(?:or|and|maybe|possibly|perhaps|vs|versus)\b\.?"
    r"|\\text\s*\{\s*(?:or|and)\s*\}|\\\()+[€£]?$"
)
"""What stands before the last of several numbers: a list of guesses, no answer."""
GUESSED = re.compile(r"[\s$.]{0,4},?\s*or\s+(?:maybe\s+|possibly\s+)?\$?(-?\d[\d.,]*)")
REFUSED = re.compile(
    r"[*_$)\]}]{0,4}\s+(?:(?:is|are|was)\s+)?(?:not|too|wrong|incorrect|impossible|cannot|can['’]t)\b"
)
DENIED = re.compile(r"\b(?:guess|not|never|cannot|\w+n['’]t)\b[^.!?\n\d]{0,20}$", re.IGNORECASE)
ONE_LETTER = re.compile(r"(?:\$+|\\\(|\\\[)\s*[A-Za-z]\s*(?:\$+|\\\)|\\\])")
ESCAPED_END = re.compile(OPENING.pattern + r"\{([^{}$\\]{1,200})\\\}[\s$.]*$")


class Extraction(NamedTuple):
    """The answer found in a text, as written there."""

    text: str | None
    """None when nothing that the policy allows was found."""
    method: Method
    """The rule that fired."""
    start: int = 0
    """Where the rule fired, in characters of the text given."""
    boxes: tuple[str, ...] = ()
    """Contents of all complete boxes, for verifiers that want to know of guesses."""


def extract(completion: str, *, strict: bool = False, policy: Policy = LENIENT) -> Extraction:
    r"""The answer of a completion, and the rule that found it.

    Only what follows the last closed ``</think>`` is read. A text that is one bare number or
    formula is its own answer.

    Args:
        completion: the response of a model, any text.
        strict: boxes and ``####`` only; short for ``policy=STRICT``.
        policy: which rules are allowed; all by default. One that is not gives way to the next.

    >>> extract(r"So it is \boxed{\frac{1}{2}}.").text
    '\\frac{1}{2}'
    >>> extract("The answer is 4.").method
    'phrase'
    """
    allowed = STRICT if strict else policy
    text, offset = completion, 0
    if "think>" in completion:
        offset = completion.rfind("</think>") + len("</think>")
        offset = 0 if offset < len("</think>") else offset
        text = completion[offset:]
        if "<think>" in text:
            return Extraction(None, "none")  # still thinking when it was cut off
    written = allowed.boxed and "box" in text and ("boxed" in text or "box{" in text)
    found = boxes(text) if written else []
    if found:
        restated = _restated(text, found, offset) if allowed.phrase else None
        return restated or _boxed(text, found, offset)
    if written and "\\}" in text and (escaped := ESCAPED_END.search(text[-300:])) is not None:
        return Extraction(escaped.group(1).strip(), "boxed", offset)  # \boxed{185\}
    at = text.rfind("####") if allowed.hash else -1
    if at >= 0 and (match := HASH.match(text, at)) and match.group(1).strip():
        return Extraction(match.group(1).strip(), "hash", offset + at)
    return _lenient(text, offset, allowed)


def _boxed(text: str, found: list[Box], offset: int) -> Extraction:
    """The last box; with the ones before it where only "and", a comma or "or" stands between.

    Of boxes joined by an approximation sign, the exact first one is meant.
    """
    first = len(found) - 1
    parts = [_inner(found[first].content)]
    while first > 0:
        between = text[found[first - 1].end : found[first].start]
        if len(between) > 60 or not CONNECTOR.fullmatch(between):
            break
        first -= 1
        if "approx" in between or "≈" in between:
            parts[0] = _inner(found[first].content)
        else:
            parts.insert(0, _inner(found[first].content))
    if (second := GUESSED.match(text, found[-1].end)) is not None:
        parts.append(second.group(1))  # \boxed{12} or 13
    different = list(dict.fromkeys(parts))
    contents = tuple(box.content for box in found)
    return Extraction(", ".join(different), "boxed", offset + found[first].start, contents)


def _restated(text: str, found: list[Box], offset: int) -> Extraction | None:
    """The answer of a "Final answer:" line after the last box, where mathematics follows it."""
    last = restated_phrase(text, found[-1].end)
    answer = after_phrase(text, last.end()) if last else None
    if last is None or not answer:
        return None
    said = LETTER.fullmatch(answer) is not None or (
        any(char.isdigit() for char in answer) and is_maths(answer)
    )
    contents = tuple(box.content for box in found)
    return Extraction(answer, "phrase", offset + last.start(), contents) if said else None


def _inner(content: str) -> str:
    """What a box holds; of a box that is all that a box holds, what that one holds."""
    for _ in range(5):
        inside = boxes(content) if "box" in content else []
        if len(inside) != 1:
            break
        content = content[: inside[0].start] + inside[0].content + content[inside[0].end :]
    return content.strip()


def _lenient(text: str, offset: int, allowed: Policy) -> Extraction:
    last = last_phrase(text) if allowed.phrase else None
    if last is not None:
        answer = after_phrase(text, last.end())
        if answer:
            return Extraction(answer, "phrase", offset + last.start())
    if allowed.boxed and OPEN_BOX.search(text):
        return Extraction(None, "none")  # the answer was to stand there, and was cut off
    whole = short_whole(text) if allowed.whole else None
    if whole is not None and is_maths(whole):
        return Extraction(whole, "whole", offset)
    return _last_resort(text, offset, allowed)


def short_whole(text: str) -> str | None:
    """All of a text that is short enough to be nothing but an answer, else None."""
    whole = text.strip() if len(text) <= WHOLE_CHARS else ""
    return whole or None


def is_maths(text: str) -> bool:
    r"""Whether all of a text is mathematics, and none of it something said.

    A formula that breaks off is mathematics too, and then refused: of ``x^2+`` the last number was
    never meant.

    >>> is_maths("x + 2"), is_maths("It is 2"), is_maths("-> 2"), is_maths(r"\frac{1}{2")
    (True, False, False, True)
    """
    if WORDS.search(text) or SAID.search(text):
        return False
    try:
        parse(text)
    except Unreadable:
        return FORMULA.search(text) is None and any(mark in text for mark in "\\^_{}")
    except (TooLarge, RecursionError):
        return True  # the verdict will say so
    return True


def _last_resort(text: str, offset: int, allowed: Policy) -> Extraction:
    formula = number = None
    if allowed.last_maths and ("$" in text or "\\" in text):
        for match in FORMULA.finditer(text, max(0, len(text) - LAST_CHARS)):
            if formula is None or not ONE_LETTER.fullmatch(match.group()):
                formula = match  # "$2 + 1 = 3$ values of $n$": the letter is no answer
    tail = max(0, len(text) - LAST_CHARS)
    if allowed.last_number:
        for match in NUMBER.finditer(text, tail):
            number = match
    last = max((m for m in (formula, number) if m), key=lambda m: m.end(), default=None)
    if last is not None and _is_guess(text, last.start(), last.end()):
        return Extraction(None, "none")
    if formula is not None and (number is None or number.end() <= formula.end()):
        content = next(group for group in formula.groups() if group is not None)
        return Extraction(content.strip(), "last_maths", offset + formula.start())
    if number is not None:
        return Extraction(number.group().strip(), "last_number", offset + number.start())
    return Extraction(None, "none")


def _is_guess(text: str, start: int, end: int) -> bool:
    """Whether what stands here is the last of a list, or denied: then it is not said to be it."""
    before = text[max(0, start - 40) : start]
    return (
        LISTED.search(before) is not None
        or DENIED.search(before) is not None
        or REFUSED.match(text, end) is not None
    )


def extract_gold(gold: str) -> Extraction:
    r"""The reference answer in a gold, which may be a whole worked solution.

    Boxes and ``####`` are looked for, and in a text of several lines a line "Answer: ..."; a text
    with none of them is the gold itself.

    >>> extract_gold("16 - 3 - 4 = 9, and 9 * 2 = 18.\n#### 18").text
    '18'
    """
    found = extract(gold, strict=True)
    if found.text is not None:
        return found
    text = gold.strip()
    last = restated_phrase(text, 0) if "\n" in text else None
    if last is not None and (answer := after_phrase(text, last.end())) is not None:
        return Extraction(answer, "gold_text", last.start())
    return Extraction(text or None, "gold_text")
