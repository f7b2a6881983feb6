r"""Phrases that announce an answer, and the answer that follows one.

"The answer is", "Answer:", a line that starts ``A:``, their French and Chinese forms. The last
phrase of a text counts; it is looked for from the end, with plain string searches where the text
is ASCII: a regular expression over the whole text costs more than all the rest of marking.
"""

from __future__ import annotations

import re

__all__ = [
    "FORMULA",
    "JOINED",
    "LETTER",
    "NUMBER",
    "after_phrase",
    "last_phrase",
    "restated_phrase",
]

TAIL_CHARS = 2_000
"""An answer after a phrase is looked for in this many characters."""
PHRASE = re.compile(
    r"(?:\banswer\b[*_\s]{0,4}(?::|=|is\b|are\b|would be\b|should be\b)|^[ \t>*_]{0,8}A[*_]{0,2}:"
    r"|答案[是为:：]|\bréponse\b\s*(?::|est\b))[*_\s:：]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
FINAL = re.compile(
    r"\bfinal answer\b[*_\s]{0,4}(?::|is\b)(?:[*_\s]{0,4}the final answer is\b)?[*_\s:]{0,8}"
    r"|^[ \t>*_#]{0,8}(?:the\s+)?(?:correct\s+)?answer[*_\s]{0,4}:[*_\s:]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
FORMULA = re.compile(
    r"\$\$([^$]{1,1000})\$\$|\\\[(.{1,1000}?)\\\]|\\\((.{1,1000}?)\\\)|(?<![\\$])\$(?=\S|\s\\)([^$\n]{1,500})(?<!\\)\$(?!\d)",
    re.DOTALL,
)
NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,])[-−+]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?%?"
    r"|(?<![A-Za-z0-9_.])[-−]?\.\d+%?"
)
JOINED = re.compile(r"\s*(?:[,;]|\b(?:or|and)\b|[,;]\s*(?:or|and)\b)\s*")
SECOND = re.compile(r"\s*(?:,|or|and|/)\s*[*_(\[]{0,4}[A-Z][*_)\]]{0,4}(?=[\s.,;]|$)")
OTHERWISE = re.compile(r"\s*or\b", re.IGNORECASE)
REASON = re.compile(
    r"(?<=[\d$)}])(?:,?\s+(?:not|because|since|as|which|where)\b|\s*\((?:not|see|since|because|as)\b)"
)
"""What follows an answer and is none."""
PLAIN = re.compile(r"[ \t]*([-+]?\$?\d[\d,]*(?:\.\d+)?%?)[ \t]*\.?[ \t]*(?:\n|$)")
"""A number that is all of a line, as most answers after a phrase are."""
LETTER = re.compile(r"[*_(\[]{0,4}([A-Z])[*_)\]]{0,4}(?=[\s.,:;!。，]|$)(?!\s*[-+=*/^<>])")
LEAD = re.compile(
    r"(?:definitely|simply|therefore|thus|just|for sure|about|option|choice|therefore)\s+", re.I
)
COPULA = re.compile(r"\b(?:is|are|equals|=)\s+")
HAN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
HAN_COPULA = re.compile(r"(?:应该是|应为|等于|[是为有])\s*")
SENTENCE_END = re.compile(r"[.!?。](?=\s|$)|\n")


def last_phrase(text: str) -> re.Match[str] | None:
    """The last phrase that announces an answer.

    >>> last_phrase("The answer is 3. No, the answer is 4.").start()
    25
    """
    if not text.isascii():
        last = None
        for match in PHRASE.finditer(text):
            last = match
        return last
    lower = text.lower()
    line = _last_line(text, lower)
    start = line.end() if line is not None else 0
    at = lower.rfind("answer", start)
    while at >= 0:
        if (found := PHRASE.match(text, at)) is not None:
            return found
        at = lower.rfind("answer", start, at)
    return line


def _last_line(text: str, lower: str) -> re.Match[str] | None:
    """The last line that starts with ``A:``, ``**A:**`` ..."""
    end = len(lower)
    marks = ("a*:", "a**:", "a_:", "a__:") if "*" in lower or "_" in lower else ()
    while True:
        at = lower.rfind("a:", 0, end)
        for mark in marks:
            at = max(at, lower.rfind(mark, 0, end))
        if at < 0:
            return None
        end = lower.rfind("\n", 0, at) + 1
        if (match := PHRASE.match(text, end)) is not None:
            return match


def restated_phrase(text: str, start: int) -> re.Match[str] | None:
    """The last "Final answer:" or line "Answer:" after a place in the text."""
    last = None
    if text.find("nswer", start) >= 0 or text.find("NSWER", start) >= 0:
        for match in FINAL.finditer(text, start):
            last = match
    return last


def after_phrase(text: str, start: int) -> str | None:
    """The answer that follows a phrase which ends at ``start``.

    >>> after_phrase("The answer is 4.", 14)
    '4'
    """
    if (plain := PLAIN.match(text, start)) is not None:
        return plain.group(1)
    return _following(text[start : start + TAIL_CHARS])


def _following(tail: str) -> str | None:
    """The answer that follows a phrase: a formula, a letter, or the rest of the sentence."""
    tail = tail.lstrip(" \t\n*_:：")
    if found := FORMULA.match(tail):
        return ", ".join(formulas(tail, found))
    while lead := LEAD.match(tail):
        tail = tail[lead.end() :]
    if (letter := LETTER.match(tail)) and SECOND.match(tail, letter.end()):
        return SENTENCE_END.split(tail, maxsplit=1)[0]  # "B or C" is no choice
    if (letter := LETTER.match(tail)) and not re.match(r"[AI]\s+[a-z]", tail[letter.start(1) :]):
        return letter.group(1)
    if (letter := re.match(r"([B-HJ-Z]|A)\s+(?:because|since|as|non|not)\b", tail)) is not None:
        return letter.group(1)
    if HAN.match(tail):
        return _after_han(tail)
    end = SENTENCE_END.search(tail)
    while end and OTHERWISE.match(tail, end.end()):
        end = SENTENCE_END.search(tail, end.end())  # "4. Or 7." is two guesses
    line = tail[: end.start()] if end else tail
    if (reason := REASON.search(line)) is not None:
        line = line[: reason.start()]
    if re.match(r"(?:The|This|There|Thus|So|Hence|Therefore|[A-Z][a-z]+)\s", line):
        said = [match.end() for match in COPULA.finditer(line)]
        if said:
            return _following(line[said[-1] :])
        numbers = NUMBER.findall(line)
        if numbers and re.match(r"[A-Z][a-z]+\s[a-z]+\s", line):  # "Jane ran 3 miles"
            return numbers[-1].strip()
    return line.strip(" \t*_`。") or None


def formulas(text: str, found: re.Match[str]) -> list[str]:
    """What a formula holds, with the ones that a comma, "or" or "and" joins to it."""
    parts = []
    while True:
        parts.append(next(group for group in found.groups() if group is not None).strip())
        between = JOINED.match(text, found.end())
        after = FORMULA.match(text, between.end()) if between else None
        if after is None:
            return parts
        found = after


def _after_han(tail: str) -> str | None:
    """The answer in a Chinese sentence: what follows its last "is", or its last number."""
    line = re.split(r"[。！？\n]", tail, maxsplit=1)[0]
    said = [match.end() for match in HAN_COPULA.finditer(line)]
    rest = line[said[-1] :] if said else ""
    if any(char.isdecimal() for char in rest) and not HAN.match(rest):
        return rest.strip(" \t*_`$")
    numbers = NUMBER.findall(line)
    return numbers[-1].strip() if numbers else line.strip(" \t*_`") or None
