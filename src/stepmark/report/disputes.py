"""A table to adjudicate on: where two verdicts differ, with what it takes to say who is right."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from .numbers import NOTHING
from .text import escape, shorten

__all__ = ["Dispute", "disputes_html"]

CHOICES = ("right", "wrong", "unsure")

HEADS = ("completion", "problem", "gold", "extracted", "verdicts", "rule", "it is")

TEXT_CHARS = 1500
"""What is shown of a problem; of a completion four times as much, folded away."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """One completion on which two verdicts differ."""

    id: str
    k: int
    group: str
    problem: str
    completion: str
    gold: str | None
    extracted: str | None
    ours: str
    """Our verdict in a word, such as ``correct``."""
    theirs: str
    """The label's, or the other verifier's."""
    rule: str
    """What decided for us."""
    kind: str = ""
    """The way in which the two differ."""
    said: str = ""
    """More on the other verdict, such as what that verifier extracted."""


def disputes_html(disputes: Sequence[Dispute], ours: str, theirs: str) -> str:
    """A table with a choice in each line, and a button that saves the choices as JSON lines.

    Choices are kept in the browser where it allows that; nothing leaves the page but the download.

    Args:
        disputes: the lines, in order.
        ours: name of the verifier whose verdicts these are.
        theirs: name of what they are compared with.
    """
    names = json.dumps([[one.group, one.id, one.k] for one in disputes])
    key = hashlib.sha256(names.encode()).hexdigest()[:16]
    head = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    body = "\n".join(_line(one, place, ours, theirs) for place, one in enumerate(disputes))
    return (
        f'<div class="disputes" data-key="{key}">\n'
        '<div class="decide" hidden><span class="decided" aria-live="polite"></span>'
        '<button type="button" class="download">download adjudications</button></div>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="disagreements">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></div>"
    )


def _line(one: Dispute, place: int, ours: str, theirs: str) -> str:
    named = {"id": one.id, "k": one.k} | ({"group": one.group} if one.group else {})
    # Escaped as JSON first, so that no character of an id is changed on the way back.
    data = html.escape(json.dumps(named, ensure_ascii=True), quote=True)
    title = " ".join(filter(None, (one.group, one.id, f"k {one.k}" if one.k else "")))
    said = f'<p class="note">{escape(shorten(one.said, 200))}</p>' if one.said else ""
    cells = (
        escape(shorten(title, 200)),
        _problem(one),
        _code(one.gold),
        _code(one.extracted),
        f"{escape(ours)}: {escape(one.ours)}<br>{escape(theirs)}: {escape(one.theirs)}{said}",
        escape(shorten(one.rule.replace("_", " "), 200)),
        _choice(place, title),
    )
    inside = "".join(
        f'<td data-name="{name}">{cell}</td>' for name, cell in zip(HEADS, cells, strict=True)
    )
    return f'<tr data-row="{data}" data-kind="{escape(one.kind)}">{inside}</tr>'


def _problem(one: Dispute) -> str:
    problem = escape(shorten(one.problem, TEXT_CHARS)) or NOTHING
    written = escape(shorten(one.completion, 4 * TEXT_CHARS)) or "(empty)"
    return f"{problem}<details><summary>completion</summary><pre>{written}</pre></details>"


def _choice(place: int, title: str) -> str:
    """Radio buttons and a field for a remark."""
    label = escape(shorten(title, 80))
    buttons = "".join(
        f'<label><input type="radio" name="dispute-{place}" value="{word}"> {word}</label>'
        for word in CHOICES
    )
    return (
        f'<fieldset><legend class="unseen">{label}</legend>{buttons}'
        f'<input type="text" class="remark" placeholder="note" aria-label="note on {label}">'
        "</fieldset>"
    )


def _code(text: str | None) -> str:
    return NOTHING if text is None else f"<code>{escape(shorten(text, 400))}</code>"
