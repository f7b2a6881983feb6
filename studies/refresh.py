"""What replay keeps: tiny reward models over two rounds of new errors, with more and less history.

    python studies/refresh.py --out runs/study-refresh --seeds 0,1,2

For each seed a first model learns ``arith`` and ``final`` errors; round 1 brings 7,200 solutions
with ``carry`` errors, round 2 as many with ``early`` ones (see ``examples/tiny_prm.py``). Arms: no
replay, 10 % and 50 % of the mixture, all history; every arm learns for the same number of steps.
The gate is open, so that each arm goes on with its own model; what it would have said at its
default is noted. One line of ``results.jsonl`` per finished piece; run again, it goes on. The
summary is written when all pieces are there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import tiny_refresh

from stepmark.prm.replay import RefreshOutcome
from stepmark.prm.replay.config import GateTable
from stepmark.prm.replay.gate import judge
from stepmark.prm.replay.matrix import Matrix, matrix_of, matrix_svg
from stepmark.report import markdown_table
from stepmark.statistics import mean_interval, paired_means
from stepmark.store import append_rows, publish, read_rows

ARMS: dict[str, tuple[float, str]] = {
    "0": (0.0, "mixture"),
    "0.1": (0.1, "mixture"),
    "0.5": (0.5, "mixture"),
    "all": (1.0, "history"),
}
PAIRS = (("0", "0.1"), ("0.5", "all"))
"""Arms in the order of work: the main comparison first, for all seeds."""
ROUNDS = (1, 2)


def main() -> int:
    """Run what is missing, then write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/study-refresh"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), choices=ROUNDS)
    chosen = parser.parse_args()
    seeds = [int(word) for word in chosen.seeds.split(",")]
    results = chosen.out / "results.jsonl"
    chosen.out.mkdir(parents=True, exist_ok=True)
    for round in ROUNDS[: chosen.rounds]:
        for seed, arm in [(s, a) for two in PAIRS for s in seeds for a in two]:
            there = {(r["seed"], r["arm"], r["round"]) for r in read_rows(results)}
            if (seed, arm, round) not in there:
                append_rows(results, [piece(chosen.out / f"seed-{seed}", seed, arm, round)])
    summarise(chosen.out, seeds, ROUNDS[: chosen.rounds])
    return 0


def piece(out: Path, seed: int, arm: str, round: int) -> dict[str, Any]:
    """One refresh: figures before and after, of the model that is kept and of the last step."""
    started, cpu = time.time(), time.process_time()
    first = tiny_refresh.first_model(out / "first", seed)
    home = out / f"replay-{arm}"
    model = first if round == 1 else (home / "rounds" / str(round - 1) / "rm").resolve()
    share, reading = ARMS[arm]
    config = tiny_refresh.settings(share, seed, reading, max_old_drop=1.0, new="any")
    done = tiny_refresh.refreshed(home, model, seed, config, round)
    last = read_rows(done.folder / "metrics.jsonl")[-1]
    names = ("old_f1", "new_f1")
    row = {
        "seed": seed,
        "arm": arm,
        "round": round,
        "n_new": done.counts["n_new"],
        "n_replay": done.counts["n_replay"],
        "before": {name: one.value for name, one in done.before.items()},
        "after": {name: one.value for name, one in done.after.items()},
        "change": {name: list(one) for name, one in done.changes.items()},
        "last_step": {name: last.get(f"eval/{name}", last.get(name)) for name in names},
        "accepted_by_default": by_default(done),
        "seconds": round_times(done),
        "wall_s": time.time() - started,
        "cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(row), flush=True)
    return row


def by_default(done: RefreshOutcome) -> bool:
    """What the gate would have said with its defaults."""
    old = {int(k): v for k, v in done.changes.items() if k.isdecimal() and int(k) < done.round}
    return judge(done.changes.get(str(done.round)), old, GateTable()).accepted


def round_times(done: RefreshOutcome) -> dict[str, float]:
    """Seconds by part, to a tenth."""
    return {name: float(f"{value:.1f}") for name, value in done.seconds.items()}


def summarise(out: Path, seeds: list[int], rounds: tuple[int, ...]) -> None:
    """``summary.md``, and a picture of the mean matrix of each arm."""
    rows = {(r["seed"], r["arm"], r["round"]): r for r in read_rows(out / "results.jsonl")}
    parts: list[str] = []
    for round in rounds:
        sets = [str(n) for n in range(round + 1)]
        table: list[list[str]] = []
        for arm in ARMS:
            own = [rows[seed, arm, round] for seed in seeds]
            cells = [spread([row["after"][name] for row in own]) for name in sets]
            last = [spread([row["last_step"][n] for row in own]) for n in ("old_f1", "new_f1")]
            said = f"{sum(row['accepted_by_default'] for row in own)} of {len(own)}"
            drawn = " / ".join(f"{row['n_replay']:,}" for row in own)
            table.append([arm, drawn, *cells, *last, said])
        heads = ["replay", "rows replayed", *(f"F1 round {n}" for n in sets)]
        heads += ["last step, old", "last step, new", "default gate accepts"]
        parts.append(f"Round {round}\n\n{markdown_table(heads, table)}")
        parts.append(compared(rows, seeds, round))
    for arm in ARMS:
        mean = mean_matrix([matrix_of(out / f"seed-{seed}" / f"replay-{arm}") for seed in seeds])
        title = f"replay {arm}: F1, mean of {len(seeds)} seeds"
        with publish(out / f"matrix-{arm}.svg", replace=True) as part:
            part.write_text(matrix_svg(mean, title), encoding="utf-8")
        parts.append(f"replay {arm}: {json.dumps(mean.to_row())}")
    with publish(out / "summary.md", replace=True) as part:
        part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print("\n\n".join(parts))


def compared(rows: dict[Any, Any], seeds: list[int], round: int) -> str:
    """Each arm less no replay, on the same seeds."""
    lines: list[list[str]] = []
    for arm in [name for name in ARMS if name != "0"]:
        cells: list[str] = []
        for name in [str(n) for n in range(round + 1)]:
            ours, theirs = (
                [rows[seed, which, round]["after"][name] for seed in seeds] for which in (arm, "0")
            )
            found = paired_means(ours, theirs)
            low, high = found.interval
            cells.append(f"{found.difference:+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append([arm, *cells])
    return markdown_table(["less no replay", *(f"F1 round {n}" for n in range(round + 1))], lines)


def mean_matrix(found: list[Matrix]) -> Matrix:
    """Cell by cell, over seeds."""
    first = found[0]
    cells = {place: fmean(one.cells[place] for one in found) for place in first.cells}
    return Matrix(first.models, first.sets, cells)


def spread(values: list[float]) -> str:
    """Mean with the 95 % interval of a t distribution over seeds."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    low, high = mean_interval(values)
    return f"{fmean(values):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
