"""Marked samples on a page: what was asked, what was written, what the verifier said and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from stepmark.types import Verdict

from .numbers import NOTHING, number
from .text import KEPT_CHARS, escape, shorten, visible

__all__ = ["SampleView", "samples_html"]

Kind = Literal["right", "wrong", "other"]
WORDS: dict[Kind, str] = {"right": "✓ right", "wrong": "✗ wrong", "other": "? no score"}

KEPT_STEPS = 200
"""What a page shows of one completion; more is a loop."""


@dataclass(frozen=True, slots=True)
class SampleView:
    """One completion with its verdict, as a page shows it."""

    problem: str
    completion: str
    gold: str | None
    extracted: str | None
    correct: bool | None
    """None when the verifier gave no score."""
    reason: str
    reward: float | None = None
    """What the optimiser saw, unitless; None where nothing was trained."""
    steps: tuple[str, ...] = ()
    """The steps of the completion where something segmented it; else its lines."""
    title: str = ""
    """What to call it, such as ``arith/test/17, sample 2``."""
    note: str = ""
    """A remark below the verdict, such as what another verifier says."""

    @classmethod
    def of(
        cls,
        problem: str,
        completion: str,
        verdict: Verdict,
        *,
        reward: float | None = None,
        steps: tuple[str, ...] = (),
        title: str = "",
        note: str = "",
    ) -> Self:
        """The view of a completion with the verdict it got."""
        return cls(
            problem,
            completion,
            verdict.gold,
            verdict.extracted,
            verdict.correct,
            str(verdict.reason),
            reward,
            steps,
            title,
            note,
        )

    @property
    def kind(self) -> Kind:
        """The filter that shows it."""
        if self.correct is None:
            return "other"
        return "right" if self.correct else "wrong"


def samples_html(views: list[SampleView]) -> str:
    """Cards with one sample each, and buttons that filter them where scripts run."""
    shares = {kind: sum(view.kind == kind for view in views) for kind in WORDS}
    buttons = _button("all", f"all ({len(views)})", pressed=True) + "".join(
        _button(kind, f"{word} ({shares[kind]})", pressed=False) for kind, word in WORDS.items()
    )
    cards = "\n".join(_card(view, place) for place, view in enumerate(views, start=1))
    return (
        '<div class="samples">\n'
        f'<div class="filter" role="group" aria-label="Show samples" hidden>{buttons}</div>\n'
        f"{cards}\n</div>"
    )


def _button(kind: str, label: str, *, pressed: bool) -> str:
    state = "true" if pressed else "false"
    return f'<button type="button" data-show="{kind}" aria-pressed="{state}">{label}</button>'


def _card(view: SampleView, place: int) -> str:
    facts = [
        ("gold", _code(view.gold)),
        ("extracted", _code(view.extracted)),
        ("reason", escape(shorten(view.reason.replace("_", " "), 400))),
    ]
    if view.reward is not None:
        facts.append(("reward", escape(number(view.reward))))
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    note = f'<p class="note">{escape(shorten(view.note))}</p>' if view.note else ""
    return (
        f'<article class="sample {view.kind}" data-kind="{view.kind}">'
        f'<header><span class="place">{escape(shorten(view.title or str(place), 200))}</span>'
        f'<span class="badge">{WORDS[view.kind]}</span></header>'
        f'<p class="problem">{escape(shorten(view.problem))}</p>'
        f'<ol class="steps">{_steps(view)}</ol><dl>{listed}</dl>{note}</article>'
    )


def _steps(view: SampleView) -> str:
    steps = view.steps or visible(view.completion).split("\n")
    lines = [step for step in steps if step.strip()] or ["(empty)"]
    if len(lines) > KEPT_STEPS:
        tail = KEPT_STEPS // 4
        left_out = f"[... {len(lines) - KEPT_STEPS:,} steps left out ...]"
        lines = [*lines[: KEPT_STEPS - tail], left_out, *lines[-tail:]]
    if sum(map(len, lines)) > KEPT_CHARS:
        lines = [shorten(line, max(120, KEPT_CHARS // len(lines))) for line in lines]
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def _code(text: str | None) -> str:
    return NOTHING if text is None else f"<code>{escape(shorten(text, 400))}</code>"
