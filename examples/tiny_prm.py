"""A process reward model from nothing, on a CPU: generated problems, a Llama of three layers.

    python examples/tiny_prm.py --out runs/tiny-prm --seed 0

A problem is a story of additions and subtractions; its solution has a line for each, then the
answer. Six of ten solutions end in an error: a sum that is wrong, or an answer that is not the last
result. The model reads a solution and says of every line whether it is right; it is examined on
problems that it has never seen. Beside the labels it learns to predict the next token, without
which it depends on the seed whether it begins to learn. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NAMES = ("Tom", "Ann", "Bob", "Eve", "Sam", "Liz")
THINGS = ("apples", "pens", "books", "coins")
LARGEST = 10
WRONG_SHARE = 0.6
MARK = "<sep>"
"""The token behind each line, where its score is read."""


def story(draw: random.Random) -> tuple[str, int, list[int]]:
    """A problem, the number that it begins with, and the changes that follow."""
    while True:
        start = draw.randint(0, LARGEST)
        signs = draw.choices((-1, 1), k=draw.randint(2, 3))
        changes = [sign * draw.randint(1, LARGEST) for sign in signs]
        results = [start + sum(changes[: n + 1]) for n in range(len(changes))]
        if all(0 <= result <= LARGEST for result in results):
            break
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    words = [f"{name} has {start} {thing} ."]
    for change in changes:
        what = f"buys {change} more" if change > 0 else f"gives away {-change}"
        words.append(f"then {name} {what} .")
    return " ".join([*words, f"how many {thing} now ?"]), start, changes


def places(kinds: Sequence[str], start: int, changes: Sequence[int]) -> list[tuple[int, str]]:
    """Lines that can hold an error of these kinds; see `solution`."""
    found: list[tuple[int, str]] = []
    here = start
    for number, change in enumerate(changes):
        if "arith" in kinds:
            found.append((number, "arith"))
        if "carry" in kinds and number and wrong_starts(here, change):
            found.append((number, "carry"))
        if "early" in kinds and number:
            found.append((number, "early"))
        here += change
    return [*found, (len(changes), "final")] if "final" in kinds else found


def wrong_starts(here: int, change: int) -> list[int]:
    """Numbers that are not the last result, and from which the next one can still be written."""
    return [n for n in range(LARGEST + 1) if n != here and 0 <= n + change <= LARGEST]


def solution(
    draw: random.Random,
    start: int,
    changes: Sequence[int],
    kinds: Sequence[str] = ("arith", "final"),
) -> dict[str, Any]:
    """The lines of a solution with a label each; it ends at its first error.

    ``arith`` gets a sum wrong, ``final`` gives another answer than the last result, ``carry`` works
    on, without a slip, from a number that is not the last result, and ``early`` answers with the
    last result while something is left to do.
    """
    is_bad = draw.random() < WRONG_SHARE
    able = places(kinds, start, changes)
    bad, kind = draw.choice(able) if is_bad and able else (None, "")
    lines: list[str] = []
    here = start
    for number, change in enumerate([*changes, None]):
        if number == bad and kind == "carry":
            here = draw.choice(wrong_starts(here, change or 0))
        ends = change is None or (number == bad and kind == "early")
        result = here if ends else here + change
        said = result
        if number == bad and kind in ("arith", "final"):
            said = draw.choice([other for other in range(LARGEST + 1) if other != result])
        if ends:
            lines.append(f"answer {said}")
        else:
            lines.append(f"step : {here} {'+' if change > 0 else '-'} {abs(change)} = {said} ;")
        if number == bad:
            break
        here = result
    return {"steps": lines, "labels": [int(number != bad) for number in range(len(lines))]}


def rows(
    count: int, seed: int, kinds: Sequence[str] = ("arith", "final")
) -> Iterator[dict[str, Any]]:
    """Labelled solutions, as `stepmark.prm.labelled_steps` reads them."""
    draw = random.Random(seed)
    for _ in range(count):
        text, start, changes = story(draw)
        yield {"problem": text, **solution(draw, start, changes, kinds), "origin": "rule"}


def make_base(folder: Path) -> Path:
    """A config and a tokenizer of whole words; the weights are drawn when training begins."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    numbers = [str(number) for number in range(LARGEST + 1)]
    words = ["has", "then", "buys", "more", "gives", "away", "how", "many", "now"]
    words += ["step", "answer", *".?:;+-="]
    known = ["<pad>", "<unk>", "</s>", MARK, *NAMES, *THINGS, *numbers, *words]
    inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(known)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="</s>",
        additional_special_tokens=[MARK],
    )
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(known),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    ).save_pretrained(folder)
    return folder


def settings(base: Path, data: Path, seed: int, steps: int) -> dict[str, Any]:
    """The tables of ``stepmark prm train``."""
    return {
        "model": {"base": str(base), "from_scratch": True, "initializer_range": 0.1},
        "data": {"rows": [str(data)], "held_out": 0.04, "held_out_limit": 1000},
        "encoding": {
            "template": "{problem} ",
            "separator": "",
            "mark": "tag",
            "tag": MARK,
            "max_tokens": 128,
        },
        "algorithm": {
            "steps": steps,
            "rows_per_step": 64,
            "learning_rate": 3e-3,
            "schedule": "constant",
            "warmup_steps": 50,
            "lm_weight": 0.5,
            "eval_every": 50,
            "save_every": 500,
            "target": 0.8,
            "target_steps": 300,
            "seed": seed,
        },
    }


def train(out: Path, seed: int, steps: int = 2500, count: int = 24_000) -> Any:
    """The finished training: `stepmark.prm.fitting.FitResult`."""
    from stepmark.prm.train import prepare, train_step_model
    from stepmark.prm.train_config import PrmConfig

    out.mkdir(parents=True, exist_ok=True)
    base, data = make_base(out / "base"), out / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)))
    config = PrmConfig.model_validate(settings(base, data, seed, steps))

    def tell(event: Any) -> None:
        if "f1" in getattr(event, "metrics", {}):
            print(f"step {event.step}: F1 {event.metrics['f1']:.3f}", flush=True)

    return train_step_model(prepare(config), out / "run", on_event=tell)


def main() -> int:
    """Train, and say how well errors are found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/tiny-prm"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2500, help="at most")
    chosen = parser.parse_args()
    result = train(chosen.out, chosen.seed, chosen.steps)
    print(f"{result.why}; best F1 {result.best_value:.3f} at step {result.best_step}")
    return 0 if result.converged else 1


if __name__ == "__main__":
    sys.exit(main())
