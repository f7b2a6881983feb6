r"""The options of a multiple-choice question, and which of them a short text names.

A text names an option by its letter ("B", "(B)", "\text{B}", "B) 12 cm", "B is correct") or by its
words, whole. A letter inside prose names nothing: "A triangle" is no option, nor is "I think so".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .compare import compare
from .folding import fold, text_key
from .limits import TooLarge, Unreadable
from .reading import parse
from .tree import Text

__all__ = ["HEDGE", "LONGEST", "Options", "named", "options_of", "plain"]

HEDGE: frozenset[str] = frozenset()
"""What a text names that leaves the choice open: "A or B"."""
LETTERS = "ABCDEFGHIJ"
"""Labels where the data has no options; ten, as MMLU-Pro has."""
COLUMNS = ("choices", "options")
LONGEST = 400
"""A text longer than this is prose, not the name of an option."""

_MARKUP = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|boxed|fbox|bf|rm)\b\s*"
    r"|\\[,;:! ()\[\]]|\\q?quad\b|[{}$*`~]"
)
_LIST_MARK = re.compile(r"\s*\(?([A-Za-z])\s?[).:]\s*")
_SEVERAL = re.compile(r"\s*(?:[,;/&+]|\band\b|\s)\s*(?:\band\b\s*)?", re.IGNORECASE)
_LEAD = re.compile(r"(?:the\s+)?(?:option|choice|answer|letter)s?\s*:?\s*", re.IGNORECASE)
_OR = re.compile(r"\s*(?:,\s*)?(?:\bor\b|\bmaybe\b|或)\s*", re.IGNORECASE)
_SAID = re.compile(
    r"[(\[（]?([A-Za-z\d]{1,3})[)\]）]?[,，。]?\s*(?:\bbecause\b|\bsince\b|\bas\b|\bis\s+(?:the\s+)?"
    r"(?:only\s+)?(?:correct|right|best|true|answer)|不是|是正确|正确|是对)"
)


@dataclass(frozen=True, slots=True)
class Options:
    """The labels of the options in order, and their texts; no texts where the data has none."""

    labels: tuple[str, ...] = tuple(LETTERS)
    texts: tuple[str, ...] = ()

    def by_text(self, text: str) -> str | None:
        r"""The label of the one option that is this text: as written, as words, as mathematics.

        >>> Options(("A", "B"), (r"\frac{1}{2}", "None of the above")).by_text("0.5")
        'A'
        """
        for same in (_same_key, _same_words, _same_maths):
            found = [
                label
                for label, other in zip(self.labels, self.texts, strict=False)
                if same(text, other)
            ]
            if len(found) == 1:
                return found[0]
        return None


def options_of(meta: Mapping[str, Any], column: str = "") -> Options:
    """The options of a problem, from a column of its data; letters A to J where there is none.

    Args:
        meta: the problem's other columns.
        column: which one; ``choices`` or ``options`` when empty. It may hold a list of texts (with
            or without "A)" before each), a table from label to text, ``{"label": [...], "text":
            [...]}``, or any of these as JSON text.

    Raises:
        Unreadable: the column holds something else.

    >>> options_of({"choices": ["A) 3", "B) 4"]})
    Options(labels=('A', 'B'), texts=('3', '4'))
    """
    name = column or next((name for name in COLUMNS if meta.get(name) is not None), "")
    value = meta.get(name)
    if value is None:
        return Options()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise Unreadable(f"the column {name} is a text, and no JSON") from error
    value = value.tolist() if hasattr(value, "tolist") else value
    labels, texts = _columns(value)
    if not texts or len(labels) != len(texts) or len(set(labels)) != len(labels):
        raise Unreadable(f"the column {name} holds {value!r:.80}, which is no list of options")
    return Options(labels, texts)


def _columns(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(value, Mapping):
        texts = value.get("text", value.get("texts"))
        labels = value.get("label", value.get("labels"))
        if texts is None and labels is None:
            return tuple(str(k).strip() for k in value), tuple(map(str, value.values()))
        both = [list(part) if isinstance(part, Sequence) else [] for part in (labels, texts)]
        return tuple(map(str, both[0])), tuple(map(str, both[1]))
    if not isinstance(value, Sequence) or len(value) > 26:
        return (), ()
    texts = [str(entry) for entry in value]
    marks = [_LIST_MARK.match(text) for text in texts]
    letters = tuple(chr(ord("A") + index) for index in range(len(texts)))
    if tuple(mark.group(1).upper() for mark in marks if mark) == letters:
        texts = [text[mark.end() :] for text, mark in zip(texts, marks, strict=True) if mark]
    return letters, tuple(texts)


@lru_cache(maxsize=4096)
def named(text: str, options: Options, *, several: bool = False) -> frozenset[str] | None:
    """The labels that a short text names: usually one; none when it hedges; None when it is prose.

    Args:
        text: an answer as it was found.
        options: what there is to choose from.
        several: letters may stand together without commas, as in a gold "AC".

    >>> sorted(named("(b)", Options())), named("A triangle", Options()), named("A or B", Options())
    (['B'], None, frozenset())
    """
    if len(text) > LONGEST:
        return None
    words = plain(text)
    whole = _LEAD.sub("", words, count=1) if _LEAD.match(words) else words
    if (label := _label(whole, options)) is not None:
        return frozenset({label})
    if (label := options.by_text(text) or options.by_text(words)) is not None:
        return frozenset({label})
    parts = [part for half in _OR.split(whole) for part in _SEVERAL.split(half) if part]
    if _OR.search(whole) and all(_label(part, options) for part in parts):
        return HEDGE
    labels = [_label(part, options) for part in _SEVERAL.split(whole)]
    if len(labels) > 1 and None not in labels:
        return frozenset(label for label in labels if label)
    if several and whole.isalpha() and whole == "".join(sorted(set(whole))):
        labels = [_label(char, options) for char in whole]
        if None not in labels:
            return frozenset(label for label in labels if label)
    return _labelled(whole, options)


def plain(text: str) -> str:
    """A text without markup, one space between its words."""
    return " ".join(_MARKUP.sub(" ", text).split()).strip(" .。")


def _label(text: str, options: Options) -> str | None:
    """The label that a text is, with brackets or a full stop around it."""
    bare = text.strip().strip(".:,;。")
    if len(bare) > 2 and bare[0] in "([（" and bare[-1] in ")]）":
        bare = bare[1:-1].strip()
    elif bare.endswith(")"):
        bare = bare[:-1].strip()
    if bare in options.labels:
        return bare
    return bare.upper() if len(bare) == 1 and bare.upper() in options.labels else None


def _labelled(words: str, options: Options) -> frozenset[str] | None:
    """The label of "B) Paris", "(B): Paris", "B is correct", "B because ..."."""
    match = re.match(r"[(\[（]?\s*(\w{1,3})\s*(?:[)\]）][.:]?|[.:、])\s*(.+)", words)
    if match is not None and match.group(1) in options.labels:
        label, rest = match.groups()
        other = options.by_text(rest)
        mentions = re.search(r"\b(?:or|and)\s+[(\[]?[A-Z]\b[)\]]?(?!\s+[a-z])", rest)
        if other not in (None, label) or mentions:
            return HEDGE  # the letter of one option, and the text of another
        return frozenset({label})
    match = _SAID.match(words)
    return frozenset({match.group(1)}) if match and match.group(1) in options.labels else None


def _same_key(text: str, other: str) -> bool:
    return text_key(text) == text_key(other)


def _same_words(text: str, other: str) -> bool:
    return text_key(fold(plain(text))) == text_key(fold(plain(other)))


def _same_maths(text: str, other: str) -> bool:
    try:
        a, b = parse(text), parse(other)
        words = isinstance(a, Text) or isinstance(b, Text)
        return not words and compare(a, b).equal is True
    except (Unreadable, TooLarge, RecursionError):
        return False
