"""Learning: every backend from one SFT checkpoint a seed, by the recipes of the slow tests."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

TITLE = "Learning"

Job = dict[str, Any]
Row = dict[str, Any]


@cache
def recipes() -> Any:
    """The module with the recipes, which the slow tests run too."""
    place = Path(__file__).resolve().parents[1] / "rl_backends" / "learning.py"
    spec = importlib.util.spec_from_file_location("learning_recipes", place)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(place)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jobs(seeds: Sequence[int]) -> list[Job]:
    """Seed by seed, so that a campaign that is stopped early has whole seeds."""
    return [{"seed": seed, "backend": name} for seed in seeds for name in recipes().RECIPES]


def do(job: Job, folder: Path) -> Row:
    """What a backend reached after its recipe, and the SFT model before it."""
    import torch

    torch.set_num_threads(1)
    learning, (seed, name) = recipes(), (job["seed"], job["backend"])
    sft = taught(folder.parent / f"taught-{seed}", seed)
    after = learning.learnt(name, folder, sft, seed)
    before, reached = learning.right(sft), learning.right(after)
    two, eight = learning.sampled(sft), learning.sampled(after)
    found = learning.paired(reached, before)
    return {
        "problems": len(before),
        "before": statistics.fmean(before),
        "after": statistics.fmean(reached),
        "difference": found.difference,
        "interval": list(found.interval),
        "p": found.p,
        "mean8_before": statistics.fmean(two.accuracy),
        "mean8_after": statistics.fmean(eight.accuracy),
        "steps_before": statistics.fmean(two.steps),
        "steps_after": statistics.fmean(eight.steps),
        "lines_before": two.lines,
        "lines_after": eight.lines,
        **_of_the_run(learning.metrics(after)),
    }


def _of_the_run(rows: Sequence[Row]) -> Row:
    """What the slow tests hold of a run's own metrics, where it has them."""
    found: Row = {}
    if "reward" in rows[-1]:
        rewards = [row["reward"] for row in rows]
        found["reward_gain"] = statistics.fmean(rewards[-5:]) - statistics.fmean(rewards[:3])
    if "critic/explained_variance" in rows[-1]:
        foreseen = [row["critic/explained_variance"] for row in rows]
        found["explained_variance"] = statistics.fmean(foreseen[-5:])
    if "steps/mean_count" in rows[-1]:
        found["last_step_count"] = rows[-1]["steps/mean_count"]
    return found


def taught(folder: Path, seed: int) -> Path:
    """The SFT checkpoint of a seed, made once."""
    from stepmark.store import publish

    if not folder.is_dir():
        with publish(folder) as part:
            recipes().taught(part, seed)
    return folder / "sft" / "checkpoints" / "final"


def section(rows: Sequence[Row], asked: Sequence[Job]) -> str:
    """One table with a row per backend and seed, and one with the least and most of the seeds."""
    from stepmark.report import markdown_table

    found = {(row["job"]["backend"], row["job"]["seed"]): row["found"] for row in rows}
    every = [_cells(job, found.get((job["backend"], job["seed"]))) for job in _by_name(asked)]
    head = (
        "backend", "seed", "before", "after", "difference [95 %]", "p (McNemar)",
        "mean@8", "step score", "lines",
    )  # fmt: skip
    least = [_span(name, found) for name in dict.fromkeys(job["backend"] for job in asked)]
    return "\n\n".join(
        (
            INTRODUCTION,
            markdown_table(head, every),
            "The same by backend, over the seeds that were run:",
            markdown_table(("backend", "seeds", "after", "difference, points", "largest p"), least),
        )
    )


INTRODUCTION = """\
A Llama of two layers and width 64 learns two-step stories by SFT (40 % of the demonstrations show
their working), and each backend goes on from there, by the recipes of
tests/rl_backends/learning.py; the slow tests run them on seed 0. Before and after: greedy accuracy
on 400 held-out problems, the same for all, compared in pairs (Newcombe's interval, McNemar's exact
p). mean@8, step score (by the rules of `arith-steps`) and lines: means over 8 samples of each of
200 other problems."""


def _by_name(asked: Sequence[Job]) -> list[Job]:
    names = list(dict.fromkeys(job["backend"] for job in asked))
    return sorted(asked, key=lambda job: names.index(job["backend"]))


def _cells(job: Job, found: Row | None) -> tuple[object, ...]:
    from stepmark.report import percent
    from stepmark.report.numbers import number, points

    if found is None:
        return (job["backend"], job["seed"], "not run", *[None] * 6)
    low, high = found["interval"]
    return (
        job["backend"],
        job["seed"],
        percent(found["before"]),
        percent(found["after"]),
        points(found["difference"], (low, high)),
        number(found["p"], 2),
        f"{100 * found['mean8_before']:.1f} to {100 * found['mean8_after']:.1f} %",
        f"{found['steps_before']:.2f} to {found['steps_after']:.2f}",
        f"{found['lines_before']:.1f} to {found['lines_after']:.1f}",
    )


def _span(name: str, found: dict[tuple[str, int], Row]) -> tuple[object, ...]:
    from stepmark.report.numbers import number

    rows = {seed: row for (backend, seed), row in found.items() if backend == name}
    if not rows:
        return (name, "not run", None, None, None)
    after = [100 * row["after"] for row in rows.values()]
    gained = [100 * row["difference"] for row in rows.values()]
    return (
        name,
        ", ".join(map(str, sorted(rows))),
        f"{min(after):.1f} to {max(after):.1f} %",
        f"{min(gained):+.1f} to {max(gained):+.1f}",
        number(max(row["p"] for row in rows.values()), 2),
    )
