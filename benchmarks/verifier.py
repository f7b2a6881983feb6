"""Measure the verifier `math`: right, and fast, beside Math-Verify in the same run.

    python benchmarks/verifier.py --data DIR --out benchmarks/results.json

CPU seconds of one core, workers included; both graders in turn, block by block, each round in fresh
processes. Goals stand beside what was measured. The page is written next to the results. A run that
was stopped goes on where it was, as long as nothing that it measures has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import accuracy
import speed
from about import PEER, about, check_machine
from corpora import GROUP, MATH, Row, load
from goals import goals
from page import page
from scaling import scaling
from stages import Stages

from stepmark.errors import DataError, Error
from stepmark.store import write_json


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran (goals that are missed are in the results)."""
    chosen = _parser().parse_args(arguments)
    try:
        print(_run(chosen))
    except Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _run(chosen: argparse.Namespace) -> str:
    if not chosen.data:
        raise DataError(
            "No data folder is given. It holds verify/ and recorded/ as benchmarks/corpora.py "
            "describes. Give it with --data DIR, or set STEPMARK_DATA."
        )
    check_machine(chosen.peer)
    out = Path(chosen.out)
    known = _earlier(out)
    corpora = load(Path(chosen.data), quick=chosen.quick)
    results = measure(corpora, chosen, out)
    write_json(out, {**known, "verifier": results})
    text = page(results)
    out.with_name("verifier.md").write_text(text, encoding="utf-8")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = os.environ.get("STEPMARK_DATA")
    parser.add_argument("--data", default=data, help="the data folder; default: $STEPMARK_DATA")
    parser.add_argument("--out", default="benchmarks/results.json", help="the page goes beside it")
    parser.add_argument("--quick", action="store_true", help="a sample of the rows, one round")
    parser.add_argument("--peer", choices=(PEER, "none"), default=PEER)
    parser.add_argument("--failing", metavar="PATH", help="write the pairs that ours marks wrong")
    parser.add_argument("--seed", type=int, default=0, help="of hashes and bootstrap draws")
    return parser


def measure(corpora: dict[str, list[Row]], chosen: argparse.Namespace, out: Path) -> dict[str, Any]:
    """All measures, with what they were made with."""
    graders = ["ours"] if chosen.peer == "none" else ["ours", "peer"]
    rounds, seed = (1 if chosen.quick else 3), chosen.seed
    words = [*(["--quick"] if chosen.quick else []), "--peer", chosen.peer, "--seed", str(seed)]
    facts = about(words, seed=seed, rounds=rounds, quick=chosen.quick)
    facts["rows"] = {name: len(rows) for name, rows in corpora.items()}
    stage = Stages(out.with_name(f".stepmark-{out.name}.stages"), json.dumps(facts))
    started = time.perf_counter()
    rates, answers = stage("throughput", lambda: speed.throughput(corpora, graders, rounds, seed))
    if chosen.failing:
        _write_rows(Path(chosen.failing), accuracy.failing(corpora, answers["ours"]))
    imports = stage("import", lambda: speed.imports(graders, 3 if chosen.quick else 7))
    latency, each = _latency(stage, corpora, graders, rounds, seed)
    pool = stage("pool", lambda: scaling(corpora, 1 if chosen.quick else 7))
    results: dict[str, Any] = {
        "about": facts,
        "throughput": rates,
        "latency": latency,
        "pool": pool,
        "import": imports,
        "accuracy": accuracy.tables(corpora, answers),
        "differing": accuracy.differing(corpora, answers),
    }
    results["goals"] = goals(results)
    missed = {goal["corpus"] for goal in results["goals"] if goal["slow"]}
    if missed:
        results["profile"] = stage(
            "profile", lambda: speed.profiles(corpora, sorted(missed), each, seed)
        )
    facts["wall_s"] = round(time.perf_counter() - started, 1)
    facts["loop_ms"] = stage("loop_ms", lambda: _loops(graders, seed))
    stage.finish()
    return results


def _latency(
    stage: Stages, corpora: dict[str, list[Row]], graders: list[str], rounds: int, seed: int
) -> tuple[dict[str, Any], list[float | None]]:
    """The figures by name, and our time of each pair of peer_tests."""
    tests = corpora["peer_tests"]
    cold, each = stage("cold", lambda: speed.latency(tests, graders, rounds, seed, prepared=False))
    read, _ = stage("gold_read", lambda: speed.latency(tests, graders, 1, seed, prepared=True))
    waiting = [row for row in tests if row.id in set(cold["open"])]
    found = {
        "cold": cold,
        "gold_read_before": read,
        "groups": stage(
            "groups", lambda: speed.grouped(corpora[MATH], graders, rounds, seed, GROUP)
        ),
        "open": stage("open", lambda: speed.opened(waiting, seed)),
    }
    return found, each


def _loops(graders: list[str], seed: int) -> dict[str, float]:
    if not speed.loops_ms:  # every other stage was kept from a run that was stopped
        with speed.children(graders, seed, pool=False):
            pass
    times = speed.loops_ms
    found = {"least": min(times), "median": median(times), "most": max(times)}
    return {name: round(value, 1) for name, value in found.items()}


def _earlier(out: Path) -> dict[str, Any]:
    """What stands in the results file: other benchmarks' entries stay."""
    try:
        return json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    except ValueError as error:
        raise DataError(
            f"{out} is not JSON ({error}), so its other results cannot be kept. It must be a file "
            f"of this benchmark or none. Remove it, or give another --out."
        ) from error


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
