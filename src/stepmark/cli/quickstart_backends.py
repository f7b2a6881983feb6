"""The runs that ``stepmark quickstart --backends`` chooses from, and what one of them learns from.

All begin with one SFT checkpoint; the settings of each are the preset ``quickstart-NAME``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError, RunError, UnknownNameError

if TYPE_CHECKING:
    from stepmark.engines import TransformersEngine

__all__ = ["ALL", "PROBLEMS_PER_STEP", "RUNS", "Run", "chosen", "write_pairs"]

ALL = "all"
"""Stands for every backend."""

PROBLEMS_PER_STEP = 32
"""Of the runs that draw completions; offline DPO's pairs come from as many problems in all."""

PAIR_SAMPLES = 8
"""Completions of the SFT model per problem, from which offline DPO's pairs are made."""

PAIRS_PER_PROBLEM = 4
"""Most pairs of one problem: as many as online DPO takes unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Run:
    """One backend of the comparison."""

    name: str
    what: str
    """What it learns from, for the line that announces it."""
    from_pairs: bool = False
    """Whether it learns from preferences between completions of the SFT model."""

    @property
    def preset(self) -> str:
        """Name of its settings."""
        return f"quickstart-{self.name}"


RUNS = (
    Run("rft", "what the SFT model wrote right"),
    Run("online-rft", "what it writes right as it learns"),
    Run("dpo", "right over wrong completions of the SFT model", from_pairs=True),
    Run("online-dpo", "right over wrong completions of its own"),
    Run("ppo", "the verifier's score, with a critic"),
    Run("grpo", "the verifier's score beside that of 7 others"),
    Run("grpo-process", "the verifier's score and the score of every line"),
    Run("grpo-iterative", "as grpo, with a new reference three times"),
)


def chosen(text: str) -> tuple[Run, ...]:
    """The runs that ``--backends`` names, each once, in the order given.

    >>> [run.name for run in chosen("grpo, ppo,grpo")]
    ['grpo', 'ppo']

    Raises:
        ConfigError: no name is given.
        UnknownNameError: a name is none of a backend's.
    """
    known = {run.name: run for run in RUNS}
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise ConfigError(
            f"--backends is {text!r}, which names none. Give {ALL}, or some of them with commas "
            f"between: {', '.join(known)}."
        )
    for name in names:
        if name not in (*known, ALL):
            hint = "The SFT model comes first always." if name == "sft" else ""
            raise UnknownNameError.of("backend of the quickstart", name, (*known, ALL), hint)
    if ALL in names:
        return RUNS
    return tuple(known[name] for name in dict.fromkeys(names))


def write_pairs(
    engine: TransformersEngine, weights: str | None, problems: int, folder: Path
) -> Path:
    """A file of preferences between a model's own completions, right over wrong, as verified.

    The completions are a run of their own beside the file and are not made twice; the file is made
    of them every time, so that it is never that of other weights or problems.

    Args:
        engine: holds the model.
        weights: digest of its weights.
        problems: how many to sample on, from those to train on.
        folder: where both go.

    Raises:
        RunError: the completions in the folder are of other weights or problems, or there is no
            problem with a right one and a wrong one.
    """
    from stepmark.evals import graded_of, run
    from stepmark.store import publish
    from stepmark.tasks import load_task
    from stepmark.types import Sampling
    from stepmark.verifiers import load_verifier

    target, samples = folder / "dpo-pairs.jsonl", folder / "dpo-samples"
    run(
        engine,
        engine.tokenizer,
        load_task("arith", "train"),
        load_verifier("math"),
        Sampling(temperature=1.0, max_tokens=64),
        out=samples,
        model="sft",
        n=PAIR_SAMPLES,
        limit=problems,
        resume=samples.exists(),
        weights=weights,
    )
    rows = _pairs_of(graded_of(samples))
    if not rows:
        raise RunError(
            f"No pairs for dpo: of {problems} problems with {PAIR_SAMPLES} completions each in "
            f"{samples}, none has both a right and a wrong one. Give more --minutes with another "
            "--out, so that SFT learns longer, or leave dpo out of --backends."
        )
    with publish(target, replace=True) as part:
        part.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return target


def _pairs_of(graded: Iterable[tuple[Any, Any]]) -> list[str]:
    """Lines of preferences, from samples and their verdicts."""
    from stepmark.rl_backends.preferences import pairs_from_group

    groups: dict[str, list[Any]] = {}
    for sample, verdict in graded:
        groups.setdefault(sample.id, []).append((sample, verdict.score))
    rows: list[str] = []
    for group in groups.values():
        for pair in pairs_from_group([score for _, score in group], cap=PAIRS_PER_PROBLEM):
            better, worse = (group[place][0].completion for place in pair[:2])
            row = {"prompt": group[0][0].problem, "chosen": better, "rejected": worse}
            rows.append(json.dumps(row, ensure_ascii=False))
    return rows
