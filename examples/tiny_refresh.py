"""A reward model that learns new errors without forgetting the old ones, from nothing, on a CPU.

    python examples/tiny_refresh.py --out runs/tiny-refresh --seed 0

The tiny reward model of ``tiny_prm.py`` learns to find sums that are wrong and answers that are not
the last result. Then the policy changes: now it works on from a wrong number, which the model has
never seen. It is refreshed on 6,000 such solutions twice: alone, and with one in ten rows of the
mixture from what it learnt before (DeepSeekMath, 4.1.4). Alone it forgets; the gate keeps the old
model. Run again, it goes on where it was. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tiny_prm

if TYPE_CHECKING:
    from stepmark.prm.replay import RefreshConfig, RefreshOutcome

FIRST_ROWS, NEW_ROWS = 24_000, 7_200
KINDS = (("arith", "final"), ("carry",), ("early",))
"""Errors of the first rows, and of each round that follows; the example makes one round."""
STEPS = 500
HELD_OUT = 0.1


def first_model(out: Path, seed: int) -> Path:
    """The reward model of the first errors; trained once."""
    from stepmark.prm.train import prepare, train_step_model
    from stepmark.prm.train_config import PrmConfig

    best = out / "run" / "checkpoints" / "best"
    if (out / "run" / "checkpoints" / "final").is_dir():
        return best
    out.mkdir(parents=True, exist_ok=True)
    base = tiny_prm.make_base(out / "base")
    data = write_rows(out / "rows.jsonl", FIRST_ROWS, seed, KINDS[0])
    tables = tiny_prm.settings(base, data, seed, 2500)
    tables["data"]["held_out"] = HELD_OUT
    config = PrmConfig.model_validate(tables)
    result = train_step_model(prepare(config), out / "run", resume=True, on_event=tell("first"))
    print(f"first model: {result.why}; F1 {result.best_value:.3f} at step {result.best_step}")
    return best


def refreshed(
    out: Path, model: Path, seed: int, config: RefreshConfig, round: int = 1
) -> RefreshOutcome:
    """A model after a round of new errors; the buffer in ``out`` holds all rounds before it."""
    from stepmark.prm import labelled_steps
    from stepmark.prm.replay import Annotator, Provenance, ReplayBuffer, refresh

    out.mkdir(parents=True, exist_ok=True)
    buffer = ReplayBuffer(out, held_out=HELD_OUT)
    for number in (0, round) if round == 1 else (round,):
        kinds, count = KINDS[number], NEW_ROWS if number else FIRST_ROWS
        file = write_rows(out / f"rows-{number}.jsonl", count, seed + 1000 * number, kinds)
        who = Annotator(kind="rule", version="1")
        words = Provenance(policy_id="+".join(kinds), annotator=who, origin="generated")
        buffer.add(labelled_steps(file), number, words)
    what = f"round {round}, replay {config.replay.share:g}"
    return refresh(model, buffer, round, config, on_event=tell(what))


def settings(share: float, seed: int, reading: str = "mixture", **gate: Any) -> RefreshConfig:
    """Those of ``stepmark prm refresh``; every share learns for the same number of steps."""
    from stepmark.prm.replay import RefreshConfig

    return RefreshConfig.model_validate(
        {
            "replay": {"share": share, "reading": reading, "seed": seed},
            "gate": gate,
            "algorithm": {
                "steps": STEPS,
                "rows_per_step": 64,
                "learning_rate": 2e-3,
                "warmup_steps": 20,
                "eval_every": 50,
                "save_every": 100,
                "patience": None,
                "seed": seed,
            },
        }
    )


def write_rows(path: Path, count: int, seed: int, kinds: tuple[str, ...]) -> Path:
    """Generated solutions as rows; the same arguments give the same file."""
    found = tiny_prm.rows(count, seed, kinds)
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def tell(what: str) -> Callable[[Any], None]:
    """Prints held-out figures as they come."""

    def one(event: Any) -> None:
        known = getattr(event, "metrics", {})
        shown = [
            f"{name} {known[name]:.3f}" for name in ("f1", "old_f1", "new_f1") if name in known
        ]
        if shown:
            print(f"{what}, step {event.step}: {', '.join(shown)}", flush=True)

    return one


def main() -> int:
    """Train, refresh with and without replay, and say what either cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/tiny-refresh"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=float, nargs="+", default=[0.0, 0.1])
    chosen = parser.parse_args()
    first = first_model(chosen.out / "first", chosen.seed)
    for share in chosen.replay:
        config = settings(share, chosen.seed)
        done = refreshed(chosen.out / f"replay-{share:g}", first, chosen.seed, config)
        print(
            f"replay {share:g}: {done.counts['n_new']:,} new rows, {done.counts['n_replay']:,} old"
        )
        for name, what in (("0", "old errors"), ("1", "new errors")):
            one, two = done.before[name].value or 0.0, done.after[name].value or 0.0
            print(f"  {what}: F1 {one:.3f} -> {two:.3f}")
        print("  accepted" if done.accepted else f"  rejected: {'; '.join(done.reasons)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
