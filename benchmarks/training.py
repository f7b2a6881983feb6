"""Measure training: a GRPO step beside TRL's, and the parts that it is made of.

    python benchmarks/training.py --out benchmarks/results.json

CPU seconds with one thread, sides in turn in one run, each trainer in a process of its own. Goals
stand beside what was measured. The page is written next to the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import training_parts as parts
from about import about, installed
from stages import Stages
from tiny import Shape, save
from training_page import page
from training_sides import peak, row, steps

import stepmark.training
from stepmark.errors import DataError, Error, SetupError
from stepmark.store import write_json

TRL = "1.16.0"
BASE: Shape = {
    "vocabulary": 512, "layers": 4, "hidden": 256,
    "prompts": 8, "group": 4, "prompt": 48, "sampled": 64,
}  # fmt: skip
QUICK: Shape = {**BASE, "layers": 2, "hidden": 64, "prompts": 2, "sampled": 16}
STEPS: tuple[tuple[dict[str, int], float, int], ...] = (
    ({}, 1.5, 4),
    ({"prompt": 192}, 2.5, 3),
    ({"vocabulary": 32000}, 2.5, 2),
)
"""What differs from the base, the ratio to reach, and rounds."""
WIDE = {"vocabulary": 32000}
PACKAGES = ("stepmark", "torch", "transformers", "trl")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran (goals that are missed are in the results)."""
    chosen = _parser().parse_args(arguments)
    try:
        print(_run(chosen))
    except Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results.json", help="the page goes beside it")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it run")
    parser.add_argument("--peer", choices=("trl", "none"), default="trl")
    return parser


def _run(chosen: argparse.Namespace) -> str:
    if chosen.peer == "trl" and installed("trl") != TRL:
        raise SetupError(
            f"The peer is trl {TRL}; installed is {installed('trl') or 'none'}. "
            "Run `make bench`, which installs it, or give --peer none to measure ours alone."
        )
    out = Path(chosen.out)
    known = _earlier(out)
    results = measure(chosen.quick, chosen.peer, out)
    write_json(out, {**known, "training": results})
    text = page(results)
    out.with_name("training.md").write_text(text, encoding="utf-8")
    return text


def _earlier(out: Path) -> dict[str, Any]:
    try:
        return json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    except ValueError as error:
        raise DataError(
            f"{out} is not JSON ({error}), so its other results cannot be kept. It must be a file "
            f"of this project's benchmarks or none. Remove it, or give another --out."
        ) from error


def measure(quick: bool, peer: str, out: Path) -> dict[str, Any]:
    """All rows, with what they were made with; a run that was stopped goes on where it was."""
    torch.set_num_threads(1)
    base, rounds = (QUICK if quick else BASE), (1 if quick else 3)
    facts = about([], seed=0, rounds=rounds, quick=quick)
    flags = (["--quick"] if quick else []) + (["--peer", peer] if peer != "trl" else [])
    facts["command"] = " ".join(("python", "benchmarks/training.py", *flags))
    facts["versions"] = {name: found for name in PACKAGES if (found := installed(name))}
    facts["sources"] = _sources()
    key = json.dumps([flags, facts["versions"], facts["sources"]])
    stage = Stages(out.with_name(f".stepmark-{out.name}.training-stages"), key)
    started = time.perf_counter()
    results: dict[str, Any] = {"about": facts, "rows": [], "steps": []}
    with tempfile.TemporaryDirectory() as folder:
        for change, goal, turns in STEPS[:1] if quick else STEPS:
            shape = {**base, **change}
            made = partial(_step, shape, goal, 1 if quick else turns, peer, Path(folder))
            entry, rows = stage(f"step {change}", made)
            results["steps"].append(entry)
            results["rows"] += rows
        made = partial(_memory, {**base, **WIDE}, peer, Path(folder))
        results["rows"] += stage("memory", made)
    long = {**base, "prompts": 1, "group": 16, "prompt": 150, "sampled": 64 if quick else 1000}
    results["rows"] += [
        stage("ragged", lambda: parts.ragged(base, rounds)),
        stage("rollouts", lambda: parts.rollouts({**base, "prompt": 192}, rounds)),
        stage("long", lambda: parts.long_groups(long, 1 if quick else 2)),
    ]
    results["growth"] = stage("growth", lambda: parts.growth(base, 1 if quick else 4))
    facts["wall_s"] = round(time.perf_counter() - started, 1)
    stage.finish()
    return results


def _sources() -> str:
    """A digest of what is measured and of what measures it."""
    digest = hashlib.blake2b(digest_size=8)
    package = Path(stepmark.training.__file__).parents[1]
    for folder in ("training", "engines", "rl_backends", "../../benchmarks"):
        for path in sorted((package / folder).resolve().glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _name(shape: Shape) -> str:
    return f"V {shape['vocabulary']}, prompt {shape['prompt']}"


def _saved(shape: Shape, folder: Path) -> Path:
    place = folder / f"v{shape['vocabulary']}"
    return place if place.is_dir() else save(shape, place)


def _step(
    shape: Shape, goal: float, rounds: int, peer: str, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole step of both sides: its parts and both losses of one batch, and the row."""
    names = ["ours"] if peer == "none" else ["ours", "trl"]
    told = steps(names, _saved(shape, folder), shape, rounds)
    split = {
        side: {
            part: median(one["parts"].get(part, 0.0) for one in every)
            for part in ("generate", "reference")
        }
        | {"whole": median(one["cpu_s"] for one in every)}
        for side, every in told.items()
    }
    entry: dict[str, Any] = {"name": _name(shape), "split": split}
    if "trl" not in told:
        return entry, []
    first = told["trl"][0]
    entry |= {"loss_ours": first["our_loss"], "loss_trl": first["loss"]}
    costs = [[one["cpu_s"] for one in told[side]] for side in names]
    return entry, [row(f"GRPO step, {_name(shape)}: over TRL", "CPU s", *costs, least=goal)]


def _memory(shape: Shape, peer: str, folder: Path) -> list[dict[str, Any]]:
    """Peak memory of log-probs forward and backward, each way in a fresh process."""
    saved = _saved(shape, folder)
    goals = {"naive": 3.5} | ({} if peer == "none" else {"trl": 6.0})
    ours, found = peak("ours", saved, shape), list[dict[str, Any]]()
    for mode, goal in goals.items():
        other = peak(mode, saved, shape)
        name = f"peak memory, {_name(shape)}: under {'TRL' if mode == 'trl' else 'log_softmax'}"
        found.append(row(name, "MB", [ours["peak_mb"]], [other["peak_mb"]], least=goal))
    return found


if __name__ == "__main__":
    sys.exit(main())
