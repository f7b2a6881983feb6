"""How often step labels from roll-outs are the truth, as the number of roll-outs grows.

    python studies/annotation.py --out runs/study-annotation --seeds 0,1,2

A Llama of two layers learns to write worked solutions of stories in four steps (SFT). For each seed
it writes four solutions of each of 100 problems of the test split at temperature 1, and completes
their prefixes itself, at temperature 1 too. Truth is what the task knows of every line. Four ways
to label from N roll-outs, N from 1 to 32:

* ``mc any``: right if one roll-out reaches the answer (hard labels of Math-Shepherd, early stop);
* ``mc half``: right if half of them do (soft labels, cut at 0.5);
* ``binary any``, ``binary half``: the same two rules in a search for the first error.

Only labels that roll-outs gave are counted, and those that a search infers from them: neither the
last line, which the verdict on the solution labels, nor the right solutions of ``binary``, which
need none. All N share their roll-outs: the first N of 32 are those of N. One line of
``results.jsonl`` per finished seed; run again, it goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stepmark.cli.app import run as stepmark
from stepmark.engines import TransformersEngine
from stepmark.prm.annotation import AnnotatedSteps, AnnotationSettings, Annotator, ToAnnotate
from stepmark.prm.annotation.sources import solutions_of_run
from stepmark.report import markdown_table
from stepmark.statistics import mean_interval
from stepmark.store import RunFolder, SampleStore, append_rows, publish, read_rows
from stepmark.tasks import arith_tokenizer, check_steps, tiny_llama
from stepmark.types import Sampling
from stepmark.verifiers import close_workers, load_verifier

TASK = "arith?steps=4&max_start=6&max_change=5&product_share=0"
NUMBERS = (1, 2, 4, 8, 16, 32)
WAYS: dict[str, dict[str, Any]] = {
    "mc any": {"method": "mc"},
    "mc half": {"method": "mc", "labels": "soft"},
    "binary any": {"method": "binary"},
    "binary half": {"method": "binary", "threshold": 0.5},
}
PROBLEMS, SAMPLES = 100, 4
DRAWN = Sampling(temperature=1.0, max_tokens=48)
SFT = (
    "algorithm.backend=sft",
    f'data.task=["{TASK}&size=19200"]',
    "data.eval_limit=50",
    "rollout.prompts_per_step=32",
    "rollout.max_tokens=48",
    "algorithm.steps=600",
    "algorithm.learning_rate=4e-3",
    "algorithm.schedule=linear",
    "algorithm.warmup_steps=30",
    "algorithm.adam_beta2=0.98",
    "algorithm.log_entropy=false",
    "algorithm.eval_every=600",
    "algorithm.save_every=600",
)


def main() -> int:
    """Run the seeds that are missing, then write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/study-annotation"))
    parser.add_argument("--seeds", default="0,1,2")
    chosen = parser.parse_args()
    seeds = [int(word) for word in chosen.seeds.split(",")]
    results = chosen.out / "results.jsonl"
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        if seed not in {row["seed"] for row in read_rows(results)}:
            started = time.process_time()
            row = measured(chosen.out / f"seed-{seed}", policy(chosen.out), seed)
            append_rows(results, [row | {"cpu_s": round(time.process_time() - started)}])
    summarise(chosen.out, seeds)
    return 0


def measured(out: Path, model: Path, seed: int) -> dict[str, Any]:
    """Every way and N on the solutions of one seed."""
    engine, judge = TransformersEngine.load(model), load_verifier("math")
    items = solutions(out, model, seed, engine, judge)
    store, ways = SampleStore(out / "rollouts"), dict[str, Any]()
    for name, way in WAYS.items():
        for n in NUMBERS:
            settings = AnnotationSettings(rollouts=n, sampling=DRAWN, seed=seed, **way)
            annotator = Annotator(engine, judge, settings, completer=str(seed), store=store)
            found = list(annotator.annotate(items))
            ways[f"{name} {n}"] = judged(found) | {"cost": annotator.counts.to_row()}
            print(seed, name, n, annotator.counts.to_row(), flush=True)
    close_workers()
    right = fmean(bool(item.verdict and item.verdict.correct) for item in items)
    lines = [true for item in items for true in truth(item)]
    about = {"solutions": len(items), "right": right, "true_lines": fmean(lines)}
    return {"seed": seed, **about, "ways": ways}


def policy(out: Path) -> Path:
    """The checkpoint of the SFT policy, trained if it is not there."""
    final = out / "sft" / "checkpoints" / "final"
    if not final.is_dir():
        tokenizer = arith_tokenizer()
        tiny_llama(tokenizer, seed=0, layers=2, width=64).save_pretrained(out / "base")
        tokenizer.save_pretrained(out / "base")
        words = ["train", "--model", out / "base", "--out", out / "sft"]
        words += [part for text in SFT for part in ("--set", text)]
        words += ["--resume"] if (out / "sft").is_dir() else []
        if code := stepmark([str(word) for word in words]):
            raise SystemExit(code)
    return final


def solutions(out: Path, model: Path, seed: int, engine: Any, judge: Any) -> list[ToAnnotate]:
    """What the policy wrote, with the verifier's verdicts."""
    from stepmark.evals import run
    from stepmark.tasks import load_task

    task = load_task(f"{TASK}&size={PROBLEMS}&seed={seed}", "test")
    folder = out / "samples"
    run(
        engine, engine.tokenizer, task, judge, DRAWN, out=folder, model=str(model), n=SAMPLES,
        seed=seed, resume=folder.is_dir(),
    )  # fmt: skip
    return solutions_of_run(RunFolder(folder), engine.tokenizer, verifier=judge.key).items


def truth(item: ToAnnotate) -> tuple[bool, ...]:
    """What the task knows of every line."""
    return check_steps(item.prompt.problem, item.steps)


def judged(found: Iterable[AnnotatedSteps]) -> dict[str, Any]:
    """Labels against the truth, as sums of each problem: intervals are over problems."""
    cells: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for one in found:
        cell, true = cells[one.item.prompt.problem.id], truth(one.item)
        for step, estimate in zip(true, one.estimates, strict=True):
            is_inferred = estimate.reason == "reached" and one.row.final_correct is False
            if estimate.label is not None and (is_inferred or estimate.reason == "rollouts"):
                cell[2 * step + (estimate.label >= 0.5)] += 1
        if one.row.final_correct is False:
            said = next((k for k, e in enumerate(one.estimates) if (e.label or 0) < 0.5), None)
            cell[4] += said == next((k for k, step in enumerate(true) if not step), None)
            cell[5] += 1
    return {"cells": [cells[name] for name in sorted(cells)]}


def summarise(out: Path, seeds: Sequence[int]) -> None:
    """``summary.md``: one line per way and N, all seeds together, and each seed's accuracy."""
    rows = {row["seed"]: row for row in read_rows(out / "results.jsonl")}
    table: list[list[str]] = []
    for name in WAYS:
        for n in NUMBERS:
            own = [rows[seed]["ways"][f"{name} {n}"] for seed in seeds]
            cells = [cell for one in own for cell in one["cells"]]
            costs = [one["cost"]["spent"] for one in own]
            labels = sum(sum(cell[:4]) for cell in cells)
            drawn = sum(cost["generated"] for cost in costs)
            each = [f"{ratio(one['cells'], right, labelled):.1%}" for one in own]
            table.append(
                [
                    name,
                    str(n),
                    share(cells, right, labelled),
                    share(cells, lambda cell: cell[0], lambda cell: cell[0] + cell[1]),
                    share(cells, lambda cell: cell[3], lambda cell: cell[2] + cell[3]),
                    share(cells, lambda cell: cell[4], lambda cell: cell[5]),
                    f"{labels:,}",
                    f"{drawn / max(labels, 1):.1f}",
                    " ".join(each),
                ]
            )
    heads = [
        "way", "N", "accuracy", "wrong lines found", "right lines kept", "first error found",
        "labels", "tokens sampled per label", "accuracy by seed",
    ]  # fmt: skip
    about = [
        f"seed {seed}: {rows[seed]['solutions']} solutions, {rows[seed]['right']:.1%} right, "
        f"{rows[seed]['true_lines']:.1%} of their lines true; {rows[seed]['cpu_s']} CPU seconds"
        for seed in seeds
    ]
    text = "\n\n".join([markdown_table(heads, table), *about])
    with publish(out / "summary.md") as part:
        part.write_text(text + "\n", encoding="utf-8")
    print(text)


def right(cell: Sequence[int]) -> int:
    """Labels of a problem that are the truth."""
    return cell[0] + cell[3]


def labelled(cell: Sequence[int]) -> int:
    """All labels of a problem that are counted."""
    return sum(cell[:4])


def ratio(cells: Sequence[Sequence[int]], part: Any, whole: Any) -> float:
    """Sum of one over the sum of the other."""
    return sum(map(part, cells)) / max(sum(map(whole, cells)), 1)


def share(cells: Sequence[Sequence[int]], part: Any, whole: Any) -> str:
    """A share with its 95 % interval over problems (ratio of sums, linearised)."""
    cells = [cell for cell in cells if whole(cell)]
    if len(cells) < 2:
        return "-"
    middle = ratio(cells, part, whole)
    mean = fmean(map(whole, cells))
    low, high = mean_interval([(part(cell) - middle * whole(cell)) / mean for cell in cells])
    return f"{middle:.1%} [{max(middle + low, 0):.1%}, {min(middle + high, 1):.1%}]"


if __name__ == "__main__":
    sys.exit(main())
