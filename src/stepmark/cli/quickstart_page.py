"""What the quickstart found: its table, the paired tests, and one page with all of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from stepmark.evals import Comparison, EvalResult, compare, graded_of, read_result
from stepmark.prm import split_steps, step_texts
from stepmark.report import Page, SampleView, markdown_table, percent
from stepmark.report.plots import Series, band_plot_svg
from stepmark.report.training import curves
from stepmark.seeds import derive_seed
from stepmark.store import RunFolder, publish, write_json

__all__ = ["Outcome", "Row", "is_evaluated", "write_page"]

SHOWN = 20
"""Marked samples on the page."""

KINDS = ("eval", "sampled")
"""The evaluations of each model: greedy, and several samples per problem."""

WIDTH = 80
"""Columns of a terminal: the table is made to fit them."""

HEADERS = ("model", "accuracy [95 %]", "vs SFT, pts", "p", "mean@8", "min", "tok")
WRITING = ("model", "mean@8 [95 %]", "shows its working", "lines", "tokens each")
LEAST_P = 1e-9
"""Below it a p says no more, and takes more room."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the table."""

    name: str
    greedy: EvalResult
    sampled: EvalResult
    worked_share: float
    """Share of greedy completions with at least one line before the answer."""
    worked_lines: float
    """Mean number of lines of those, the answer's included."""
    minutes: float
    """Of training: drawing, marking and learning; held-out evaluations are not counted."""
    tokens_learnt: int
    """Tokens of the completions that it was trained with."""
    paired: Comparison | None = None
    """Against SFT on the same problems; None for SFT itself."""

    @classmethod
    def read(cls, folder: Path, name: str) -> Self:
        """The row of a model whose run and evaluations lie in the job's folder."""
        greedy = folder / f"eval-{name}"
        texts = [sample.completion for sample, _ in graded_of(greedy)]
        lines = [len(_lines(text)) for text in texts]
        worked = [count for count in lines if count > 1]
        run = RunFolder.open(folder / name)
        return cls(
            name,
            read_result(greedy),
            read_result(folder / f"sampled-{name}"),
            len(worked) / len(lines),
            sum(worked) / max(len(worked), 1),
            (_trained_s(run) + _sampling_s(folder, name)) / 60,
            int(sum(row.get("num_tokens", 0) for row in run.metrics())),
            None if name == "sft" else compare(greedy, folder / "eval-sft"),
        )

    def cells(self) -> tuple[str | None, ...]:
        """The row of the comparison."""
        found = self.paired
        return (
            self.name,
            _share(self.greedy),
            None if found is None else _difference(found),
            None if found is None else _p(found.p),
            percent(self.sampled.accuracy),
            _short(self.minutes),
            _short(self.tokens_learnt / 1e6),
        )

    def writing(self) -> tuple[str, ...]:
        """How it writes."""
        tokens = self.greedy.mean_tokens
        return (
            self.name,
            percent(self.sampled.accuracy, (self.sampled.low, self.sampled.high)),
            percent(self.worked_share),
            f"{self.worked_lines:.1f}",
            "" if tokens is None else f"{tokens:.1f}",
        )

    def to_row(self) -> dict[str, Any]:
        """All its numbers, for machines."""
        return {
            "greedy": self.greedy.to_row(),
            "sampled": self.sampled.to_row(),
            "worked_share": self.worked_share,
            "worked_lines": self.worked_lines,
            "minutes": self.minutes,
            "tokens_learnt": self.tokens_learnt,
            "against_sft": None if self.paired is None else self.paired.to_row(),
        }


def _trained_s(run: RunFolder) -> float:
    return sum(row.get("collect_s", 0.0) + row.get("update_s", 0.0) for row in run.timings())


def _sampling_s(folder: Path, name: str) -> float:
    """Of the completions that pairs were made of, where a backend has such."""
    place = folder / f"{name}-samples"
    if not place.is_dir():
        return 0.0
    return sum(row.get("generation_and_marking_s", 0.0) for row in RunFolder.open(place).timings())


def _short(value: float) -> str:
    """With one decimal while there is room for it."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _share(result: EvalResult) -> str:
    """In at most fifteen characters."""
    low, high = (f"{100 * bound:.0f}" for bound in (result.low, result.high))
    share = "100 %" if result.accuracy == 1 else percent(result.accuracy)
    return f"{share} [{low}, {high}]" if high != "100" else f"{share} [{low},100]"


def _difference(found: Comparison) -> str:
    low, high = (f"{100 * bound:.0f}" for bound in found.interval)
    return f"{100 * found.difference:+.0f} [{low}, {high}]"


def _p(p: float) -> str:
    """In at most five characters.

    >>> _p(0.0312), _p(0.0004), _p(1e-95), _p(1.0)
    ('0.03', '4e-4', '<1e-9', '1.00')
    """
    if not math.isfinite(p):
        return ""
    if p < LEAST_P:
        return "<1e-9"
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}".replace("e-0", "e-")


@dataclass(frozen=True, slots=True)
class Outcome:
    """SFT and what was trained from it, each with its paired difference from SFT."""

    rows: tuple[Row, ...]
    """SFT first."""

    legend: ClassVar[str] = (
        "accuracy: greedy, on 500 held-out problems, with Wilson's interval; vs SFT: paired by "
        "problem, with Newcombe's 95 % interval and McNemar's exact p; mean@8: share right of 8 "
        "samples a problem; min: minutes of training; tok: millions of completion tokens in it."
    )
    caveat: ClassVar[str] = (
        "The demonstrations were chosen so that RL has something to find: 60 % show the bare "
        "answer, 40 % the working, and a model this small is right far more often when it shows "
        "its working. This shows that the machinery works, not what RL gains on a real model, "
        "and one seed with settings chosen for this task ranks no algorithms."
    )

    @classmethod
    def read(cls, folder: Path, names: Sequence[str]) -> Self:
        """What lies in the job's folder of SFT and these backends."""
        return cls(tuple(Row.read(folder, name) for name in ("sft", *names)))

    @property
    def best(self) -> str:
        """The backend with the highest accuracy; the first of equals."""
        return max(self.rows[1:], key=lambda row: row.greedy.accuracy).name

    def table(self) -> str:
        """The comparison in Markdown, at most `WIDTH` columns wide."""
        return markdown_table(HEADERS, [row.cells() for row in self.rows])

    def writing(self) -> str:
        """How each model writes, in Markdown."""
        return markdown_table(WRITING, [row.writing() for row in self.rows])

    def text(self) -> str:
        """The comparison with what must be known to read it, for a terminal."""
        notes = [textwrap.fill(text, WIDTH) for text in (self.legend, self.caveat)]
        return "\n\n".join([self.table(), *notes])

    def to_row(self) -> dict[str, Any]:
        """All numbers, for machines; ``paired`` is the first backend against SFT."""
        paired = self.rows[1].paired
        return {
            "models": {row.name: row.to_row() for row in self.rows},
            "paired": None if paired is None else paired.to_row(),
        }


def is_evaluated(folder: Path, name: str) -> bool:
    """Whether both evaluations of a model lie in the job's folder, finished."""
    return all((folder / f"{kind}-{name}" / "summary.json").is_file() for kind in KINDS)


def write_page(outcome: Outcome, folder: Path) -> None:
    """``report.html``, ``table.md`` and ``summary.json`` in the job's folder."""
    tests = "\n".join(f"* {row.paired}" for row in outcome.rows[1:])
    parts = (outcome.table(), outcome.legend, tests, outcome.writing(), outcome.caveat)
    with publish(folder / "table.md", replace=True) as part:
        part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(folder / "summary.json", outcome.to_row())
    names = [row.name for row in outcome.rows[1:]]
    subtitle = f"SFT, then {', '.join(names)}, on arith with a Llama of 0.65 M parameters"
    page = Page("Stepmark quickstart", subtitle)
    page.section("What each reached").table(HEADERS, [row.cells() for row in outcome.rows])
    page.text(outcome.legend, *(str(row.paired) for row in outcome.rows[1:]), outcome.caveat)
    page.section("How each writes").table(WRITING, [row.writing() for row in outcome.rows])
    if len(names) > 1:
        page.section("Side by side").figure(_together(folder, names), TOGETHER)
    for name in (*names, "sft"):
        page.section(f"{name}, step by step")
        for svg, caption in curves(RunFolder.open(folder / name).metrics()):
            page.figure(svg, caption)
    page.section(f"{SHOWN} marked samples after {outcome.best}")
    page.samples(_samples(folder, outcome.best))
    page.write(folder / "report.html")


TOGETHER = (
    "Greedy accuracy on the 200 held-out problems that choose each run's best checkpoint; the "
    "table is made on others."
)


def _together(folder: Path, names: Sequence[str]) -> str:
    """Held-out accuracy of every backend by step."""
    lines: list[Series] = []
    for name in names:
        rows = RunFolder.open(folder / name).metrics()
        points = [(row["step"], row["eval/accuracy"]) for row in rows if "eval/accuracy" in row]
        lines.append(Series(name, tuple((float(x), float(y)) for x, y in points)))
    return band_plot_svg(lines, "Held-out accuracy", "step", "share")


def _samples(folder: Path, name: str) -> list[SampleView]:
    """Greedy completions of a backend, chosen by a hash, with what the model wrote before it."""
    before = {sample.id: sample for sample, _ in graded_of(folder / "eval-sft")}
    graded = graded_of(folder / f"eval-{name}")
    graded.sort(key=lambda row: derive_seed("shown", row[0].id))
    return [
        SampleView.of(
            sample.problem,
            sample.completion,
            verdict,
            steps=_lines(sample.completion),
            title=sample.id,
            note="After SFT it wrote: " + before[sample.id].completion.replace("\n", "; "),
        )
        for sample, verdict in graded[:SHOWN]
    ]


def _lines(text: str) -> tuple[str, ...]:
    return step_texts(text, split_steps(text, "newline"))
