"""What the quickstart found: its table, the paired test, and one page with all of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from stepmark.evals import Comparison, EvalResult, graded_of, read_result
from stepmark.prm import split_steps, step_texts
from stepmark.report import Page, SampleView, markdown_table, percent
from stepmark.report.training import curves
from stepmark.seeds import derive_seed
from stepmark.store import RunFolder, publish, write_json

__all__ = ["Outcome", "Row", "write_page"]

SHOWN = 20
"""Marked samples on the page."""

HEADERS = ("model", "greedy [95 %]", "mean@8 [95 %]", "shows its working", "lines", "tokens")


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

    @classmethod
    def read(cls, folder: Path, name: str) -> Self:
        """The row of a model whose evaluations lie in the job's folder."""
        greedy = folder / f"eval-{name}"
        texts = [sample.completion for sample, _ in graded_of(greedy)]
        lines = [len(_lines(text)) for text in texts]
        worked = [count for count in lines if count > 1]
        return cls(
            name,
            read_result(greedy),
            read_result(folder / f"sampled-{name}"),
            len(worked) / len(lines),
            sum(worked) / max(len(worked), 1),
        )

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        tokens = self.greedy.mean_tokens
        return (
            self.name,
            percent(self.greedy.accuracy, (self.greedy.low, self.greedy.high)),
            percent(self.sampled.accuracy, (self.sampled.low, self.sampled.high)),
            percent(self.worked_share),
            f"{self.worked_lines:.1f}",
            "" if tokens is None else f"{tokens:.1f}",
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both models and their paired difference."""

    rows: tuple[Row, ...]
    paired: Comparison

    caveat: ClassVar[str] = (
        "The demonstrations were chosen so that RL has something to find: 60 % show the bare "
        "answer, 40 % the working,\nand a model this small is right far more often when it shows "
        "its working. This shows that the machinery works,\nnot what GRPO gains on a real model."
    )

    @classmethod
    def read(cls, folder: Path, paired: Comparison) -> Self:
        """What lies in the job's folder."""
        return cls(tuple(Row.read(folder, name) for name in ("sft", "grpo")), paired)

    def table(self) -> str:
        """The table in Markdown."""
        return markdown_table(HEADERS, [row.cells() for row in self.rows])

    def to_row(self) -> dict[str, Any]:
        """All numbers, for machines."""
        models = {
            row.name: {
                "greedy": row.greedy.to_row(),
                "sampled": row.sampled.to_row(),
                "worked_share": row.worked_share,
                "worked_lines": row.worked_lines,
            }
            for row in self.rows
        }
        return {"models": models, "paired": self.paired.to_row()}


def write_page(outcome: Outcome, folder: Path) -> None:
    """``report.html``, ``table.md`` and ``summary.json`` in the job's folder."""
    text = f"{outcome.table()}\n\n{outcome.paired}\n\n{outcome.caveat}\n"
    with publish(folder / "table.md", replace=True) as part:
        part.write_text(text, encoding="utf-8")
    write_json(folder / "summary.json", outcome.to_row())
    page = Page("Stepmark quickstart", "SFT, then GRPO, on arith with a Llama of 0.65 M parameters")
    page.section("What each reached").table(HEADERS, [row.cells() for row in outcome.rows])
    page.text(str(outcome.paired), outcome.caveat.replace("\n", " "))
    page.section("GRPO, step by step")
    for svg, caption in curves(RunFolder.open(folder / "grpo").metrics()):
        page.figure(svg, caption)
    page.section("SFT, step by step")
    for svg, caption in curves(RunFolder.open(folder / "sft").metrics()):
        page.figure(svg, caption)
    page.section(f"{SHOWN} marked samples after GRPO").samples(_samples(folder))
    page.write(folder / "report.html")


def _samples(folder: Path) -> list[SampleView]:
    """Greedy completions after GRPO, chosen by a hash, with what the model wrote before it."""
    before = {sample.id: sample for sample, _ in graded_of(folder / "eval-sft")}
    graded = graded_of(folder / "eval-grpo")
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
