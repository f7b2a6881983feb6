"""The page of a training run: reward and accuracy over the steps, and marked samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepmark.seeds import derive_seed
from stepmark.store import RunFolder, Sample

from .markdown import markdown_table
from .numbers import count, number, percent
from .page import Page
from .plots import Series, band_plot_svg
from .samples import SampleView

__all__ = ["curves", "last_samples", "training_page", "training_table"]

SHOWN = 20
"""Marked samples on a page."""

HEADLINES = (
    ("reward", "mean reward"),
    ("eval/accuracy", "held-out accuracy"),
    ("loss", "loss"),
    ("pairs", "pairs in a step"),
    ("rewards/accuracies", "share of pairs in the right order"),
    ("kl", "divergence from the reference, nats per token"),
    ("entropy", "entropy, nats per token"),
    ("completions/mean_length", "mean length, tokens"),
    ("completions/clipped_ratio", "share cut off"),
    ("frac_reward_zero_std", "share of groups that teach nothing"),
    ("grad_norm", "norm of the gradient"),
)
"""Metrics in the table of a page, with the words for them."""

MEANINGS = {
    "mean reward": "mean reward of the completions sampled for training",
    "held-out accuracy": "greedy accuracy on held-out problems",
}


def training_page(run: RunFolder, title: str) -> Page:
    """What a run did: curves, first and last value of each metric, twenty of its last samples.

    Raises:
        SetupError: matplotlib is not installed.
    """
    rows = run.metrics()
    page = Page(title, f"run folder: {Path(run.path).name}").section("Curves")
    for svg, caption in curves(rows):
        page.figure(svg, caption)
    page.section("Metrics").table(["metric", "first", "last", "steps"], list(_table(rows)))
    views = last_samples(run, SHOWN)
    if views:
        page.section(f"{len(views)} samples of the last step, marked").samples(views)
    return page


def training_table(run: RunFolder) -> str:
    """The run in Markdown: first, last and best held-out accuracy, and the main metrics."""
    rows = run.metrics()
    parts: list[str] = []
    evaluated = [row for row in rows if "eval/accuracy" in row]
    if evaluated:
        metric = f"eval/{run.config().get('algorithm', {}).get('best_metric', 'accuracy')}"
        best = max(evaluated, key=lambda row: row.get(metric, row["eval/accuracy"]))
        named = (("first", evaluated[0]), ("last", evaluated[-1]), ("best", best))
        cells = [[name, *_evaluation(row)] for name, row in named]
        headers = ["evaluation", "step", "held-out accuracy [95 %]", "problems"]
        parts.append(markdown_table(headers, cells))
        parts.append(
            f"Best by {metric.removeprefix('eval/')}: checkpoints/best, of step {best['step']}. "
            "It was chosen on these problems, so its accuracy is a little too high: measure it on "
            "others."
        )
    else:
        parts.append("No held-out evaluation was made; the policy is in checkpoints/final.")
    metrics = [row for row in _table(rows) if row[0] != "held-out accuracy"]
    if metrics:
        parts.append(markdown_table(["metric", "first", "last", "steps"], metrics))
    return "\n\n".join(parts) + "\n"


def _evaluation(row: Mapping[str, Any]) -> list[object]:
    low, high = row.get("eval/accuracy_low"), row.get("eval/accuracy_high")
    interval = None if low is None or high is None else (low, high)
    problems = row.get("eval/n")
    shown = count(None if problems is None else int(problems))
    return [row["step"], percent(row["eval/accuracy"], interval), shown]


def curves(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Drawings with captions: reward and held-out accuracy by step, where a run has them."""
    drawn: list[tuple[str, str]] = []
    lines = [
        Series(label, points)
        for name, label in HEADLINES[:2]
        if len(points := _points(rows, name)) > 1
    ]
    if lines:
        title = " and ".join(line.name for line in lines)
        plot = band_plot_svg(lines, title[0].upper() + title[1:], "step", "share")
        caption = "; ".join(MEANINGS[line.name] for line in lines)
        drawn.append((plot, f"{caption[0].upper()}{caption[1:]}."))
    loss = _points(rows, "loss")
    if len(loss) > 1 and not _points(rows, "reward"):
        line = Series("loss", loss)
        drawn.append((band_plot_svg([line], "Loss", "step", "nats per token"), "Training loss."))
    return drawn


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(row["step"]), float(row[name])) for row in rows if name in row)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[list[object]]:
    table: list[list[object]] = []
    for name, label in HEADLINES:
        values = [row[name] for row in rows if name in row]
        if values:
            table.append([label, number(values[0]), number(values[-1]), len(values)])
    return table


def last_samples(run: RunFolder, count: int) -> list[SampleView]:
    """Marked completions of the last step in the store, chosen by a hash of their names."""
    keys = run.samples.verdict_keys()
    steps = {key.step for key in run.samples.keys()}  # noqa: SIM118  (a method of the store)
    if not keys or not steps:
        return []
    verdicts = run.samples.verdicts(keys[0])
    samples = [s for s in run.samples.rows(max(steps)) if s.key in verdicts]
    samples.sort(key=lambda sample: derive_seed("shown", sample.id, sample.k))
    return [_view(sample, verdicts[sample.key]) for sample in samples[:count]]


def _view(sample: Sample, verdict: Any) -> SampleView:
    title = f"{sample.id}, sample {sample.k}"
    return SampleView.of(sample.problem, sample.completion, verdict, title=title)
