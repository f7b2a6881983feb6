"""Solutions with a score per step on a page: how low each is, which one is called wrong first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .numbers import NOTHING
from .samples import KEPT_STEPS
from .text import KEPT_CHARS, escape, shorten

__all__ = ["Outcome", "SolutionView", "solutions_html"]

Outcome = Literal["found", "elsewhere", "missed", "alarm", "clear"]

WORDS: dict[Outcome, str] = {
    "found": "✓ error found",
    "elsewhere": "✗ another step named",
    "missed": "✗ error missed",
    "alarm": "✗ false alarm",
    "clear": "✓ no error, none named",
}
RIGHT = ("found", "clear")

DEEPEST = 60
"""Per cent of the colour of heat at a score of 0: the number on it stays readable."""


@dataclass(frozen=True, slots=True)
class SolutionView:
    """One solution with scores and labels, as a page shows it; steps count from 0 here."""

    title: str
    problem: str
    steps: tuple[str, ...]
    scores: tuple[float | None, ...]
    """In [0, 1]; None where a step has none."""
    labels: tuple[float | None, ...]
    """1 for right, 0 for wrong, None where nothing is known."""
    threshold: float
    first_error: int
    """-1 for none."""
    prediction: int
    """The first step below the threshold, -1 for none."""
    outcome: Outcome


def solutions_html(views: Sequence[SolutionView]) -> str:
    """Cards with one solution each, and buttons that filter them where scripts run."""
    counts = Counter(view.outcome for view in views)
    buttons = _button("all", f"all ({len(views)})", pressed=True) + "".join(
        _button(kind, f"{word} ({counts[kind]})", pressed=False)
        for kind, word in WORDS.items()
        if counts[kind]
    )
    cards = "\n".join(_card(view) for view in views)
    return (
        '<div class="samples">\n'
        f'<div class="filter" role="group" aria-label="Show solutions" hidden>{buttons}</div>\n'
        f"{cards}\n</div>"
    )


def _button(kind: str, label: str, *, pressed: bool) -> str:
    state = "true" if pressed else "false"
    return f'<button type="button" data-show="{kind}" aria-pressed="{state}">{label}</button>'


def _card(view: SolutionView) -> str:
    color = "right" if view.outcome in RIGHT else "wrong"
    facts = (("first error", view.first_error), ("named first", view.prediction))
    listed = "".join(f"<div><dt>{name}</dt><dd>{_step(index)}</dd></div>" for name, index in facts)
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("step", "score", "label", ""))
    return (
        f'<article class="sample {color}" data-kind="{view.outcome}">'
        f'<header><span class="place">{escape(shorten(view.title, 200))}</span>'
        f'<span class="badge">{WORDS[view.outcome]}</span></header>'
        f'<p class="problem">{escape(shorten(view.problem))}</p>'
        f'<table class="heat"><thead><tr>{heads}</tr></thead><tbody>{_rows(view)}</tbody></table>'
        f"<dl>{listed}<div><dt>threshold</dt><dd>{view.threshold:.3g}</dd></div></dl></article>"
    )


def _step(index: int) -> str:
    return "none" if index < 0 else f"step {index + 1}"


def _rows(view: SolutionView) -> str:
    rows: list[str] = []
    limit = max(120, KEPT_CHARS // max(1, len(view.steps)))
    for index, (step, score, label) in enumerate(
        zip(view.steps[:KEPT_STEPS], view.scores, view.labels, strict=False)
    ):
        first = ' class="first"' if index == view.prediction else ""
        heat = "" if score is None else f' style="--h:{round(DEEPEST * (1 - score))}%"'
        told = NOTHING if score is None else f"{score:.2f}"
        rows.append(
            f"<tr{first}><td>{index + 1}</td><td{heat}>{told}</td>{_label(label)}"
            f"<td>{escape(shorten(step, limit))}</td></tr>"
        )
    if len(view.steps) > KEPT_STEPS:
        left_out = f"[... {len(view.steps) - KEPT_STEPS:,} steps left out ...]"
        rows.append(f"<tr><td></td><td></td><td></td><td>{left_out}</td></tr>")
    return "".join(rows)


def _label(label: float | None) -> str:
    if label is None:
        return f"<td>{NOTHING}</td>"
    if label in (0, 1):
        return '<td class="yes">✓ right</td>' if label else '<td class="no">✗ wrong</td>'
    return f"<td>{label:.2f}</td>"
