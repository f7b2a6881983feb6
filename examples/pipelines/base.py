"""What the pipelines of docs/pipelines.md begin with: an untrained model, and problems to label.

    python examples/pipelines/base.py --out runs/base --seed 0

The model is a Llama of two layers with the tokenizer of the task `arith`. The problems are of the
split that is trained on, so that no label speaks of a problem that models are examined on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stepmark.tasks import arith_tokenizer, load_task, tiny_llama

TASK = "arith?steps=2&max_start=6&max_change=5&product_share=0"
PROBLEMS = 200


def write(out: Path, seed: int) -> None:
    """Model and tokenizer in a folder, and ``problems.jsonl`` beside them."""
    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=seed, layers=2, width=64).save_pretrained(out)
    tokenizer.save_pretrained(out)
    task = load_task(f"{TASK}&seed=1&size={PROBLEMS}", "train")
    rows = ({"id": p.id, "problem": p.text, "gold": p.gold} for p in task.problems)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (out / "problems.jsonl").write_text(lines, encoding="utf-8")


def main() -> None:
    """Write them where the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/base"))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    write(chosen.out, chosen.seed)


if __name__ == "__main__":
    main()
