r"""Tokens of an answer, LaTeX and plain maths alike, in one pass.

What only decorates (``\left``, spacing, dollar signs around a formula, Markdown bold) is dropped
here, so that the parser sees meaning only. Nothing is ever skipped because it is not understood:
an unknown character or command is a token that the parser refuses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .boxed import close_brace
from .limits import MAX_DIGITS, TooLarge, Unreadable
from .units import CURRENCY, UNIT_WORDS
from .vocabulary import (
    COMMANDS,
    DROPPED,
    FUNCTIONS,
    GREEK,
    GREEK_LETTERS,
    OPS,
    TEXTUAL,
    WORDS,
)

__all__ = ["ORDINALS", "Token", "tokens"]


class Token(NamedTuple):
    """A piece with its kind: num, sym, fn, op, text, unit, cmd, end."""

    kind: str
    text: str
    spaced: bool = False
    """White space stands before it."""


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_PIECE = re.compile(
    r"(?P<space>\s+|~)"
    r"|(?P<cmd>\\(?:[A-Za-z]+|.))"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<two><=|>=|!=|==|\*\*|\+/-|\.{3})"
    r"|(?P<sup>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+)"
    r"|(?P<han>[\u3040-\u30ff\u4e00-\u9fff]+)"
    r"|(?P<char>.)",
    re.DOTALL,
)
_GROUPED = re.compile(
    r"(?<!\d)[1-9]\d{0,2}(?:(?:,|\{,\}|,\\!\s?|\\[,;: ]|[ ~_])\d{3})+(?![\d,])(?:\.\d+)?"
)
_PLAIN = re.compile(r"\d+(?:\.\d+|\.(?=\s*(?:$|[^\w\s.])))?|\.\d+")
_GROUPED_IN_BRACKETS = re.compile(r"[1-9]\d{0,2}(?:(?:\{,\}|,\\!\s?)\d{3})+(?!\d)(?:\.\d+)?")
_SHORT_WORDS = frozenset(
    "yes no odd all the for is of per dne rpm may jan feb mar apr".split()  # noqa: SIM905
)
HAN_JOINTS = {"或": "or", "或者": "or", "和": ",", "与": ",", "及": ","}
SPECIAL = {"∞": "oo", "π": "pi", "∅": "emptyset", "…": "dots"}
GLUED = ("sqrt", "pi", "sin", "cos", "tan", "cot", "sec", "csc", "log")
CODES = {"USD": "dollar", "EUR": "euro", "GBP": "sterling"}
_MATHS_IN_TEXT = re.compile(
    r"[-+]?[\d.,/]*\d(?:\s*[A-Za-z][A-Za-z ^²³/]*)?"
    r"|[-+\d\s.,/()\[\]]+(?:and|or)[-+\d\s.,/()\[\]]+"
)
ORDINALS = frozenset(("th", "st", "nd", "rd"))
SIGNS = {char: (Token("op", char), Token("op", char, True)) for char in "{}()[],^_"}
"""Signs that are one character and never part of a longer one, without and with space before."""
_DIGITS = re.compile(r"\d{1,18}(?![\d.,{\\ ~_])")
_SEPARATORS = re.compile(r"[^\d.]")


def tokens(text: str) -> list[Token]:
    r"""The tokens of a cleaned text, the last of kind ``end``.

    Raises:
        Unreadable: a ``\text{`` that is never closed.
        TooLarge: a number with more digits than the bounds allow.
    """
    out: list[Token] = []
    at, depth, spaced = 0, 0, False
    size = len(text)
    while at < size:
        char = text[at]
        if char in SIGNS:
            out.append(SIGNS[char][spaced])
            depth += (char in "([") - (char in ")]")
            at, spaced = at + 1, False
            continue
        if char == " ":
            at, spaced = at + 1, True
            continue
        if char.isdecimal() or (char == "." and text[at + 1 : at + 2].isdecimal()):
            joined = bool(out) and out[-1].kind == "op" and out[-1].text in "_^"
            at, token = _number(text, at, depth + joined, spaced)
            out.append(token)
            spaced = False
            continue
        piece = _PIECE.match(text, at)
        if piece is None:
            raise Unreadable(f"the character {char!r}")
        kind, value = piece.lastgroup, piece.group()
        at = piece.end()
        if kind == "space":
            spaced = True
            continue
        if kind == "cmd" and value[1:] in TEXTUAL:
            at = _textual(text, at, spaced, out)
        elif kind == "cmd" and value[1:] in ("begin", "end"):
            end = close_brace(text, at) if text[at : at + 1] == "{" else None
            if end is None:
                raise Unreadable(f"{value} without a name")
            out.append(Token(value[1:], text[at + 1 : end - 1]))
            at = end
        else:
            before = len(out)
            _piece(str(kind), value, spaced, out)
            if len(out) == before:
                spaced = True
                continue
            depth += sum(
                (t.text in ("(", "[", "{{")) - (t.text in (")", "]", "}}")) for t in out[before:]
            )
        spaced = False
    out.append(Token("end", ""))
    return out


def _number(text: str, at: int, depth: int, spaced: bool) -> tuple[int, Token]:
    if (short := _DIGITS.match(text, at)) is not None:
        return short.end(), Token("num", short.group(), spaced)
    grouped = _GROUPED_IN_BRACKETS if depth > 0 else _GROUPED
    match = grouped.match(text, at) or _PLAIN.match(text, at)
    if match is None:
        raise Unreadable(f"the number at {text[at : at + 12]!r}")
    digits = _SEPARATORS.sub("", match.group())
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of {len(digits)} digits, more than {MAX_DIGITS}")
    return match.end(), Token("num", digits.rstrip("."), spaced)


def _textual(text: str, at: int, spaced: bool, out: list[Token]) -> int:
    r"""``\text{...}``: its words, which may be "and", a unit, a number, or plain text."""
    start = at
    while start < len(text) and text[start] == " ":
        start += 1
    end = close_brace(text, start) if text[start : start + 1] == "{" else None
    if end is None:
        raise Unreadable("\\text without a closing brace")
    words = text[start + 1 : end - 1]
    bare = words.strip().strip(".,;").strip()
    if bare in FUNCTIONS and not _is_minutes(bare, out):
        out.append(Token("fn", bare, spaced))
    elif bare.lower() in ("and", ",", "") and words.strip():
        out.append(Token("op", ",", spaced))
    elif bare == "in" and _ends_unit(text, end):
        out.append(Token("text", bare, spaced))
    elif bare.lower() in WORDS and len(bare) > 1:
        out.append(Token(*WORDS[bare.lower()], spaced))
    elif _MATHS_IN_TEXT.fullmatch(bare):
        out.extend(tokens(bare)[:-1])
    elif bare in ("e", "i") and not text.startswith("\\text", start - 5):
        out.append(Token("sym", bare, spaced))
    elif words.strip():
        out.append(Token("text", words.strip(), spaced or words[0] == " "))
    return end


def _is_minutes(word: str, out: list[Token]) -> bool:
    """Whether "min" stands after a number: minutes, not the smallest of something."""
    return word == "min" and bool(out) and out[-1].kind == "num"


def _ends_unit(text: str, at: int) -> bool:
    """Whether "in" is inches: at the end, or under a power."""
    return re.match(r"\s*(?:$|[\^²³.])", text[at : at + 10]) is not None


def _piece(kind: str, value: str, spaced: bool, out: list[Token]) -> None:
    if kind == "word":
        _word(value, spaced, out)
    elif kind == "sup":
        out += [
            Token("op", "^"),
            Token("op", "{"),
            *tokens(value.translate(_SUPERSCRIPTS))[:-1],
            Token("op", "}"),
        ]
    elif kind == "han":
        joined = HAN_JOINTS.get(value)
        out.append(Token("op", joined, spaced) if joined else Token("text", value, spaced))
    elif kind == "two":
        name = {"==": "=", "**": "^", "+/-": "+-"}.get(value, value)
        out.append(Token("const", "dots", spaced) if value == "..." else Token("op", name, spaced))
    elif kind == "cmd":
        name = value[1:]
        if name in COMMANDS:
            out.append(Token(*COMMANDS[name], spaced))
        elif name in FUNCTIONS:
            out.append(Token("fn", name, spaced))
        elif name in GREEK:
            out.append(Token("sym", name, spaced))
        elif name.startswith("quad") and len(name) > 4:  # "\\quadx": the space was lost
            _word(name[4:], True, out)
        elif name[:-1] in FUNCTIONS and len(name) > 3:  # "\\cotx"
            out += [Token("fn", name[:-1], spaced), Token("sym", name[-1])]
        elif name not in DROPPED:
            out.append(Token("cmd", name, spaced))
    elif value in CURRENCY:
        out.append(Token("unit", CURRENCY[value], spaced))
    elif value in SPECIAL:
        out.append(Token("const", SPECIAL[value], spaced))
    elif value in GREEK_LETTERS:
        out.append(Token("sym", GREEK_LETTERS[value], spaced))
    elif value in "√∛":
        out.append(Token("fn", "sqrt" if value == "√" else "cbrt", spaced))
    else:
        out.append(Token("op" if value in OPS else "odd", OPS.get(value, value), spaced))


def _word(word: str, spaced: bool, out: list[Token]) -> None:
    """A run of letters: a function, a constant, a unit, symbols side by side, or plain words."""
    if word in FUNCTIONS and not _is_minutes(word, out):
        out.append(Token("fn", word, spaced))
    elif _is_minutes(word, out):
        out.append(Token("text", word, spaced))
    elif word in CODES:
        out.append(Token("unit", CODES[word], spaced))
    elif word in ORDINALS and out and out[-1].kind == "num" and not spaced:
        out.append(Token("text", word, spaced))
    elif word == "cup" and out and out[-1].text in (")", "]", "}}"):
        out.append(Token("op", "cup", spaced))
    elif word in WORDS or (len(word) > 2 and word.lower() in WORDS):
        found = WORDS.get(word) or WORDS[word.lower()]
        out.append(Token(*found, spaced))
    elif len(word) > 1 and (word in UNIT_WORDS or (len(word) > 3 and word.lower() in UNIT_WORDS)):
        out.append(Token("text", word, spaced))
    elif word[:2] == "ln" and len(word) == 3:
        out += [Token("fn", "ln", spaced), Token("sym", word[2])]
    elif len(word) <= 3 and not (len(word) > 1 and word.lower() in _SHORT_WORDS):
        out += [Token("sym", letter, spaced and index == 0) for index, letter in enumerate(word)]
    else:
        name = next((known for known in GLUED if word.startswith(known)), "")
        rest = word[len(name) :]
        if name and len(rest) <= 1:
            _word(name, spaced, out)
            out.extend(Token("sym", letter) for letter in rest)
        else:
            out.append(Token("text", word, spaced))
