"""Measure training of step models: tokens per CPU second beside plain loops of transformers.

    python benchmarks/prm.py --out benchmarks/results.json

One thread, sides in turn in one process, each step on the same rows: forward, backward and AdamW.
Tokens are those of the rows; padding is work, and counts for nothing. The figures go into the file
under ``prm_training``; docs/prm-training.md quotes them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch
from about import about, installed
from tiny import make_tokenizer
from transformers import AutoModelForTokenClassification, LlamaConfig

from stepmark.prm.batches import Batches
from stepmark.prm.checkpoint import PrmCard
from stepmark.prm.data import StepRow
from stepmark.prm.learning import StepLearner
from stepmark.prm.model import StepModel, batches_of
from stepmark.prm.train_config import StepLoss
from stepmark.store import write_json
from stepmark.training.packing import pack_lengths

BUDGET, ROWS, LONGEST, VOCABULARY = 4096, 16, 768, 512
LAYERS, WIDTH = 4, 256
RATE = 1e-5
PACKAGES = ("stepmark", "torch", "transformers")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of few rows: does it run")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rounds, count = (1, 6) if chosen.quick else (chosen.rounds, ROWS)
    found = measure(count, rounds)
    facts = about([], seed=0, rounds=rounds, quick=chosen.quick)
    facts["command"] = "python benchmarks/prm.py" + (" --quick" if chosen.quick else "")
    facts["versions"] = {name: known for name in PACKAGES if (known := installed(name))}
    known = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {}
    write_json(chosen.out, {**known, "prm_training": {"about": facts, **found}})
    print(json.dumps(found, indent=1))
    return 0


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Tokens per CPU second of each side, and the ratios; the loss of one batch on every side."""
    rows = make_rows(count)
    tokens = sum(row.length for row in rows)
    sides = {
        "stepmark": ours(rows),
        "same_batches": plain(rows, "same"),
        "sorted_batches": plain(rows, "sorted"),
        "padded_to_longest": plain(rows, "longest"),
    }
    losses = {name: step() for name, step in sides.items()}  # a warm-up, before any rate is taken
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, step in sides.items():
            started = time.process_time()
            step()
            seconds[name].append(time.process_time() - started)
    speed = {name: tokens / median(every) for name, every in seconds.items()}
    ratios = {
        f"over_{name}": [
            theirs / mine for mine, theirs in zip(seconds["stepmark"], seconds[name], strict=True)
        ]
        for name in ("same_batches", "sorted_batches", "padded_to_longest")
    }
    return {
        "rows": count,
        "tokens": tokens,
        "longest": max(row.length for row in rows),
        "median_length": int(median(row.length for row in rows)),
        "first_loss": losses,
        "tokens_per_cpu_s": {name: round(value, 1) for name, value in speed.items()},
        "ratio": {name: round(median(every), 3) for name, every in ratios.items()},
        "range": {n: [round(min(e), 3), round(max(e), 3)] for n, e in ratios.items()},
        "goal": {"over_same_batches": 0.9, "over_padded_to_longest": 1.5},
    }


def make_rows(count: int, seed: int = 0) -> list[StepRow]:
    """Random tokens with lengths like those of worked solutions: many short, a few long."""
    draw = random.Random(seed)
    found: list[StepRow] = []
    for number in range(count):
        length = LONGEST if number == 0 else min(LONGEST, int(draw.lognormvariate(5.5, 0.5)))
        prompt = max(8, length // 5)
        steps = max(1, (length - prompt) // 30)
        ids = draw.choices(range(3, VOCABULARY), k=length)
        ends = tuple((n + 1) * (length - prompt) // steps - 1 for n in range(steps))
        labels = tuple(float(draw.random() < 0.8) for _ in ends)
        parts = (np.array(part, dtype=np.int32) for part in (ids[:prompt], ids[prompt:]))
        found.append(StepRow(*parts, ends, labels))
    return found


def make_model() -> Any:
    """The same model for every side."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LONGEST,
        num_labels=2,
        pad_token_id=0,
    )
    return AutoModelForTokenClassification.from_config(config).eval()


def ours(rows: Sequence[StepRow]) -> Callable[[], float]:
    """One optimizer step as `stepmark prm train` takes it."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    config = StepLoss(tokens_per_microbatch=BUDGET)
    batches = Batches(len(rows), len(rows), 0)
    learner = StepLearner(StepModel(model, make_tokenizer()), rows, [], PrmCard(), config, batches)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        whole = 0.0
        for compute in learner.losses(range(len(rows)), BUDGET):
            loss = compute()
            loss.value.backward()
            whole += loss.numbers["loss"]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return whole

    return step


def plain(rows: Sequence[StepRow], how: str) -> Callable[[], float]:
    """One optimizer step of a plain loop over padded batches.

    Args:
        rows: the same.
        how: ``same`` takes the batches of ours, each padded to its own longest row; ``sorted``
            batches of rows of like length, which have little padding; ``longest`` pads every row
            to the longest of all.
    """
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    lengths = [row.length for row in rows]
    longest = max(lengths) if how == "longest" else None
    if how == "same":
        groups = batches_of(model.base_model, [row.encoded for row in rows], BUDGET)
    else:
        groups = pack_lengths([longest or length for length in lengths], BUDGET)
    batches = [_padded([rows[place] for place in group], longest) for group in groups]
    labels = sum(len(row.labels) for row in rows)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        whole = 0.0
        for ids, mask, targets in batches:
            logits = model(input_ids=ids, attention_mask=mask).logits
            loss = torch.nn.functional.cross_entropy(
                logits.view(-1, 2), targets.view(-1), ignore_index=-100, reduction="sum"
            )
            loss = loss / labels
            loss.backward()
            whole += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return whole

    return step


def _padded(rows: Sequence[StepRow], longest: int | None) -> tuple[torch.Tensor, ...]:
    width = longest or max(row.length for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask, targets = torch.zeros_like(ids), torch.full_like(ids, -100)
    for place, row in enumerate(rows):
        ids[place, : row.length] = torch.from_numpy(np.concatenate([row.prompt, row.ids])).long()
        mask[place, : row.length] = 1
        for end, label in zip(row.ends, row.labels, strict=True):
            targets[place, len(row.prompt) + end] = int(label)
    return ids, mask, targets


if __name__ == "__main__":
    sys.exit(main())
