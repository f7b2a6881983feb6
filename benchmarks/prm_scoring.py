"""Measure scoring: a reward model over ProcessBench-gsm8k, beside a plain loop over the steps.

    python benchmarks/prm_scoring.py --base MODEL --out benchmarks/results.json

Solutions per CPU second with one thread. The loop runs the same model in transformers once per
step, on the problem and all steps so far, and reads the last position; sides take blocks of
solutions in turn. MODEL is a folder with a tokenizer and a config, such as SmolLM2-135M-Instruct:
weights are drawn, once small and once in its own size. The page is written next to the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from about import about, installed
from stages import Stages

from stepmark.errors import DataError, Error, SetupError
from stepmark.prm import Base, EncodingSettings, PrmScorer, base_model, save_step_model
from stepmark.prm.checkpoint import SelfTestRow, card_of
from stepmark.report.markdown import markdown_table
from stepmark.store import write_json
from stepmark.types import Problem, StepItem

GOAL = 3.0
SMALL = {
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
PACKAGES = ("stepmark", "torch", "transformers", "tokenizers")
BLOCK = 8
"""Solutions that a side takes before it is the other's turn."""
METHOD = """\
**How.** CPU time with one thread, after a first block that does not count; the sides take blocks of
{block} solutions in turn. "ratio" is the median over the rounds of the peer's cost over ours (more
is better), "from .. to" its least and greatest. "loop over steps" runs the model once per step on
problem and steps so far; "loop over solutions" once per solution, alone, with the same places read.
Both get tokens that are made already; ours makes its own, which is in its time. Weights are drawn,
float32; the largest difference between a score of ours and of the loops is beside each row.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran (goals that are missed are in the results)."""
    chosen = _parser().parse_args(arguments)
    if chosen.quick:
        chosen.solutions, chosen.large, chosen.rounds = 8, 0, 1
    try:
        print(_run(chosen))
    except Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results.json", help="the page goes beside it")
    parser.add_argument("--base", help="folder with tokenizer and config; else STEPMARK_SMOLLM2")
    parser.add_argument("--solutions", type=int, default=400, help="of ProcessBench, small model")
    parser.add_argument(
        "--large", type=int, default=16, help="solutions in the base's size; 0: none"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few solutions: does it run")
    return parser


def _run(chosen: argparse.Namespace) -> str:
    base = chosen.base or os.environ.get("STEPMARK_SMOLLM2", "")
    if not (Path(base) / "config.json").is_file():
        raise SetupError(
            f"--base is {base!r}, which holds no config.json. Make the folder of a small model:\n"
            "    python examples/get_smollm2.py"
        )
    torch.set_num_threads(1)
    out = Path(chosen.out)
    try:
        known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    except ValueError as error:
        raise DataError(
            f"{out} is not JSON ({error}). Remove it, or give another --out."
        ) from error
    facts = about([], seed=0, rounds=chosen.rounds, quick=chosen.quick)
    flags = ("--solutions", str(chosen.solutions), "--large", str(chosen.large))
    flags = ("--quick",) if chosen.quick else flags
    facts["command"] = " ".join(("python", "benchmarks/prm_scoring.py", *flags))
    facts["versions"] = {name: found for name in PACKAGES if (found := installed(name))}
    stage = Stages(out.with_name(f".stepmark-{out.name}.scoring-stages"), json.dumps(flags))
    items = _items()
    many, few = _evenly(items, chosen.solutions), _evenly(items, chosen.large)
    rows = [stage("small", lambda: measure("small", base, SMALL, many, chosen.rounds))]
    if few:
        rows.append(stage("own size", lambda: measure("own size", base, {}, few, 1)))
    results = {"about": facts, "goal": GOAL, "rows": rows}
    write_json(out, {**known, "prm_scoring": results})
    text = page(results)
    out.with_name("prm_scoring.md").write_text(text, encoding="utf-8")
    stage.finish()
    return text


def _evenly(items: Sequence[StepItem], count: int) -> Sequence[StepItem]:
    """So many of them, evenly over the file, in which those of one model stand together."""
    return items[:: max(1, len(items) // max(1, count))][:count]


def _items() -> list[StepItem]:
    """The solutions of ProcessBench-gsm8k."""
    path = Path(os.environ.get("STEPMARK_DATA", ""), "processbench/processbench_gsm8k.jsonl")
    if not path.is_file():
        raise SetupError(
            f"There is no {str(path)!r}. Set STEPMARK_DATA to the folder of data sets:\n"
            "    export STEPMARK_DATA=FOLDER"
        )
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [StepItem(Problem(row["id"], row["problem"], None), tuple(row["steps"])) for row in rows]


def measure(
    name: str, base: str, changes: dict[str, int], items: Sequence[StepItem], rounds: int
) -> dict[str, Any]:
    """One row: cost of each side per solution, and how far their scores are apart."""
    with tempfile.TemporaryDirectory() as folder:
        place = _checkpoint(base, changes, Path(folder))
        scorer = PrmScorer(place, device="cpu")
        rows = [scorer.encoder.encode(item.problem, item.steps) for item in items]
        model = scorer.model.model

        def ours(block: range) -> list[tuple[float, ...]]:
            scorer.cache.known.clear()
            return [row.scores for row in scorer.score([items[at] for at in block])]  # type: ignore[misc]

        sides: dict[str, Callable[[range], list[tuple[float, ...]]]] = {
            "ours": ours,
            "loop over steps": lambda block: [_by_step(model, rows[at]) for at in block],
            "loop over solutions": lambda block: [_at_once(model, rows[at]) for at in block],
        }
        costs: list[dict[str, float]] = []
        found: dict[str, list[tuple[float, ...]]] = {}
        for side in sides.values():
            side(range(min(2, len(items))))
        for _ in range(rounds):
            cost, found = _round(sides, len(items))
            costs.append(cost)
    return _entry(name, model, rows, costs, found)


def _checkpoint(base: str, changes: dict[str, int], folder: Path) -> Path:
    from transformers import AutoConfig, AutoTokenizer

    tokenizer, config = AutoTokenizer.from_pretrained(base), AutoConfig.from_pretrained(base)
    for key, value in changes.items():
        setattr(config, key, value)
    config.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    drawn = Base(str(folder / "base"), from_scratch=True, initializer_range=0.1)
    model = base_model(drawn, device="cpu")
    card = card_of(
        model,
        encoding=EncodingSettings(max_tokens=4096),
        self_test=(SelfTestRow(problem="1 + 1?", steps=("1 + 1 = 2",)),),
    )
    save_step_model(folder / "prm", model, card)
    return folder / "prm"


@torch.no_grad()
def _by_step(model: Any, row: Any) -> tuple[float, ...]:
    scores = []
    for end in row.ends:
        ids = torch.tensor([[*row.prompt_ids, *row.ids[: end + 1]]])
        scores.append(float(model(input_ids=ids).logits[0, -1].softmax(-1)[1]))
    return tuple(scores)


@torch.no_grad()
def _at_once(model: Any, row: Any) -> tuple[float, ...]:
    logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.ids]])).logits[0]
    places = [len(row.prompt_ids) + end for end in row.ends]
    return tuple(logits[places].softmax(-1)[:, 1].tolist())


def _round(
    sides: dict[str, Callable[[range], list[tuple[float, ...]]]], count: int
) -> tuple[dict[str, float], dict[str, list[tuple[float, ...]]]]:
    cost = dict.fromkeys(sides, 0.0)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for start in range(0, count, BLOCK):
        for name, side in sides.items():
            before = time.process_time()
            found[name] += side(range(start, min(count, start + BLOCK)))
            cost[name] += time.process_time() - before
    return cost, found


def _entry(
    name: str,
    model: Any,
    rows: Sequence[Any],
    costs: Sequence[dict[str, float]],
    found: dict[str, list[tuple[float, ...]]],
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "model": name,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "solutions": len(rows),
        "steps": sum(len(row.ends) for row in rows) / len(rows),
        "tokens": sum(row.length for row in rows) / len(rows),
        "ours_per_cpu_s": len(rows) / median(cost["ours"] for cost in costs),
        "peers": {},
    }
    for peer in list(found)[1:]:
        ratios = sorted(cost[peer] / cost["ours"] for cost in costs)
        gaps = [
            abs(one - two)
            for ours, theirs in zip(found["ours"], found[peer], strict=True)
            for one, two in zip(ours, theirs, strict=True)
        ]
        entry["peers"][peer] = {
            "per_cpu_s": len(rows) / median(cost[peer] for cost in costs),
            "ratio": median(ratios),
            "from": ratios[0],
            "to": ratios[-1],
            "largest_gap": max(gaps),
        }
    return entry


def page(results: dict[str, Any]) -> str:
    """Markdown of one run."""
    facts = results["about"]
    cells = [
        (
            f"{row['model']}, {row['parameters'] / 1e6:.1f} M",
            f"{row['solutions']} of {row['tokens']:.0f} tokens, {row['steps']:.1f} steps",
            peer,
            f"{row['ours_per_cpu_s']:.2f}",
            f"{found['per_cpu_s']:.2f}",
            f"{found['ratio']:.2f} ({found['from']:.2f} .. {found['to']:.2f})",
            f"{results['goal']:g}" if peer == "loop over steps" else "",
            f"{found['largest_gap']:.0e}",
        )
        for row in results["rows"]
        for peer, found in row["peers"].items()
    ]
    headers = ("model", "solutions", "peer", "ours per CPU s", "peer per CPU s", "ratio", "goal")
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return "\n".join(
        (
            "# Scoring, measured\n",
            f"`{facts['command']}`, {facts['date']}, seed {facts['seed']}, {facts['rounds']} "
            f"rounds (one in its own size), {facts['cpu']}, one thread, Python {facts['python']}, "
            f"{versions}, commit {facts['commit']}.\n",
            markdown_table((*headers, "largest gap"), cells),
            "",
            METHOD.format(block=BLOCK),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
