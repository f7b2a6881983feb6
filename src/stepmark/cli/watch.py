"""What a training run shows while it goes: a live view on a terminal, plain lines elsewhere.

Whatever a model wrote passes `stepmark.report.text.visible` first: no escape sequence of a
completion reaches the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .console import err, progress

if TYPE_CHECKING:
    from stepmark.rl_backends import Event
    from stepmark.types import Marked

__all__ = ["Watch", "numbers_of", "sample_panel"]

SHOWN: tuple[tuple[str, str, str], ...] = (
    ("reward", "reward", "{:.3f}"),
    ("loss", "loss", "{:.3f}"),
    ("kl", "KL", "{:.2g} nats"),
    ("clip_ratio/region_mean", "clipped", "{:.1%}"),
    ("grad_norm", "gradient", "{:.3g}"),
    ("frac_reward_zero_std", "flat groups", "{:.0%}"),
    ("completions/mean_length", "length", "{:.0f}"),
)
"""The numbers that matter of each step: metric, the word for it, how it is written. The loss is
left out where there is a reward: in reinforcement learning it is no sign of progress."""

HELD_OUT: tuple[tuple[str, str, str], ...] = (
    ("accuracy", "accuracy", "{:.1%}"),
    ("f1", "F1 of first errors", "{:.3f}"),
    ("step_f1", "F1 of steps", "{:.3f}"),
    ("loss", "loss", "{:.3f}"),
)
"""The number of a held-out evaluation that is shown: the first of these that there is."""

KEPT_LINES = 6
"""Lines of a completion in the live view: its last ones, where the answer stands."""

KEPT_CHARS = 1200
"""Characters of a text in the live view."""


class Watch:
    """Shows a run: a live view where there is a terminal, and a line now and then elsewhere.

    Args:
        what: the word in front of the bar.
        every: steps between lines where there is no terminal.
        console: where it is shown; standard error by default.
    """

    def __init__(self, what: str, every: int | None = None, console: Console = err) -> None:
        self.what, self.every, self.console = what, every, console
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self.bar = progress()
        self.id: Any = None
        self.first_step, self.started, self.step = 0, 0.0, 0
        self.numbers: list[tuple[str, str]] = []
        self.accuracy = ""
        self.sample: Marked | None = None
        self.live = Live(
            get_renderable=self.view, console=console, refresh_per_second=4, auto_refresh=True
        )

    def __enter__(self) -> Watch:
        if self.is_live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:
            self.live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        from stepmark.rl_backends import Evaluated, Refreshed, Saved, Started, StepDone
        from stepmark.rl_backends import StepsCounted as Counted

        if isinstance(event, Started):
            self.id = self.bar.add_task(self.what, total=event.steps, completed=event.step)
            self.first_step = self.step = event.step
            self.started = time.monotonic()
        elif isinstance(event, Counted):
            self._say(f"{self.what}: {event.counts}")
        elif isinstance(event, Refreshed):
            numbers = ", ".join(f"{name} {value:.3g}" for name, value in event.metrics.items())
            self._say(f"{self.what} step {event.step}: reward models learnt; {numbers}")
        elif isinstance(event, StepDone):
            self._step(event)
        elif isinstance(event, Evaluated):
            self._evaluated(event)
        elif isinstance(event, Saved) and not self.is_live:
            self._say(f"{self.what} step {event.step}: saved {event.path}")

    def view(self) -> Group:
        """What the terminal shows now: bar with time left, numbers, the last sample with marks."""
        parts: list[Any] = [self.bar]
        named = [*self.numbers, *([("held-out", self.accuracy)] if self.accuracy else [])]
        if named:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for name, _ in named:
                table.add_column(name, no_wrap=True)
            table.add_row(*(value for _, value in named))
            parts.append(table)
        if self.sample is not None:
            room = max(2, min(KEPT_LINES, self.console.height - 9))
            parts.append(sample_panel(self.sample, self.step, room))
        return Group(*parts)

    def _step(self, event: Any) -> None:
        step, steps = event.step, event.steps
        self.step, self.numbers = step, numbers_of(event.metrics)
        self.sample = event.sample if event.sample is not None else self.sample
        self.bar.update(self.id, completed=step)
        every = self.every or max(1, steps // 20)
        if not self.is_live and (step % every == 0 or step == steps):
            numbers = ", ".join(f"{name} {value}" for name, value in self.numbers)
            self._say(f"{self.what} step {step} of {steps}: {numbers}{self._left(step, steps)}")

    def _evaluated(self, event: Any) -> None:
        best = ", the best so far" if event.is_best and event.step else ""
        for name, word, text in HELD_OUT:
            if name in event.metrics:
                said = text.format(event.metrics[name])
                self.accuracy = f"{said} (step {event.step})"
                self._say(f"{self.what} step {event.step}: held-out {word} {said}{best}")
                return

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False)

    def _left(self, step: int, steps: int) -> str:
        if step == steps:
            return ""
        pace = (time.monotonic() - self.started) / max(step - self.first_step, 1)
        minutes = pace * (steps - step) / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", under a minute left"


def numbers_of(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """The few numbers of a step that people watch, as word and text.

    >>> numbers_of({"loss": 0.1, "reward": 0.5, "grad_norm": 1.23456, "entropy": 2.0})
    [('reward', '0.500'), ('gradient', '1.23')]
    """
    left_out = {"loss"} if "reward" in metrics else set[str]()
    return [
        (word, text.format(metrics[name]))
        for name, word, text in SHOWN
        if name in metrics and name not in left_out
    ]


def sample_panel(sample: Marked, step: int, lines: int = KEPT_LINES) -> Panel:
    """One completion with its marks: problem, the last lines of what was written, the verdicts."""
    from stepmark.report.text import shorten, visible

    rollout = sample.rollout
    problem = " ".join(visible(shorten(rollout.prompt.problem.text, KEPT_CHARS // 4)).split())
    written = visible(shorten(rollout.text, KEPT_CHARS)).strip().split("\n")
    kept = written if len(written) <= lines else ["[...]", *written[1 - lines :]]
    body = Text(f"{problem}\n", style="dim")
    body.append("\n".join(kept), style="not dim")
    marks = [
        Text(f"{key}: {_said(verdict)}", style=_colour(verdict.correct))
        for key, verdict in sample.verdicts.items()
    ]
    if sample.step_scores:
        scores = " ".join("–" if one is None else f"{one:.2f}" for one in sample.step_scores)
        marks.append(Text(f"steps: {scores}"))
    reward = "" if sample.reward is None else f", reward {sample.reward:.3g}"
    title = Text(visible(f"step {step}, {rollout.prompt.problem.id}{reward}"))
    return Panel(Group(body, *marks), title=title, title_align="left", border_style="dim")


def _said(verdict: Any) -> str:
    from stepmark.report.text import shorten, visible

    word = {True: "right", False: "wrong", None: "no score"}[verdict.correct]
    score = "" if verdict.score in (None, 0, 1) else f" {verdict.score:.2f}"
    found = "" if verdict.extracted is None else f", found {shorten(verdict.extracted, 80)}"
    gold = "" if verdict.gold is None else f", gold {shorten(verdict.gold, 80)}"
    reason = str(verdict.reason).replace("_", " ")
    return " ".join(visible(f"{word}{score} ({reason}{found}{gold})").split())


def _colour(correct: bool | None) -> str:
    return {True: "green", False: "red", None: "yellow"}[correct]
