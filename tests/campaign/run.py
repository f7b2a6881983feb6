"""The campaign: hours of runs that no everyday or slow test has time for, and their summary.

    python tests/campaign/run.py learning --seeds 0,1,2
    python tests/campaign/run.py kills --seeds 0,1,2
    python tests/campaign/run.py summary

Each part is a module of this folder with four names: ``TITLE``; ``jobs(seeds)``, the jobs as
dictionaries of plain values; ``do(job, folder)``, which runs one of them in a folder of its own
and gives what it found as a dictionary (``cpu_s`` in it is added to the job's own: what children
computed); ``section(rows, jobs)``, the Markdown for all of them. A row is on the disk the moment
its job is done: a campaign that is stopped, or told to stop after some minutes, goes on where it
was when it is run again. Rows lie in ``--out`` as ``PART.jsonl``; the summary is made from them
and nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE)]

from about import about  # noqa: E402  (a module of this folder, found by the line above)

PARTS = ("learning", "kills")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a part; a last line that was torn by a kill is left out."""
    if not path.is_file():
        return []
    found: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append(path: Path, row: dict[str, Any]) -> None:
    """Puts a row at the end of a part's file, on a line of its own whatever was torn before it."""
    torn = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def missing(part: Any, seeds: list[int], path: Path) -> Iterator[dict[str, Any]]:
    """The jobs of a part that have no row yet."""
    done = {json.dumps(row["job"], sort_keys=True) for row in rows_of(path)}
    for job in part.jobs(seeds):
        if json.dumps(job, sort_keys=True) not in done:
            yield job


def run(
    name: str, seeds: list[int], out: Path, minutes: float, only: frozenset[str] = frozenset()
) -> int:
    """Runs what is missing of a part; how many jobs are left when the minutes are over.

    With ``only``, jobs of other backends are neither run nor counted.
    """
    part, path, started = importlib.import_module(name), out / f"{name}.jsonl", time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    left = [job for job in missing(part, seeds, path) if not only or job["backend"] in only]
    while left and time.monotonic() - started < 60 * minutes:
        job = left.pop(0)
        folder = out / name / "-".join(str(value) for value in job.values())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        seconds, cpu = time.monotonic(), time.process_time()
        found = part.do(job, folder)
        row = {
            "job": job,
            "found": found,
            "seconds": round(time.monotonic() - seconds, 1),
            "cpu_s": round(time.process_time() - cpu + found.pop("cpu_s", 0.0), 1),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "about": about(ROOT),
        }
        append(path, row)
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{name} {job}: {found}; {len(left)} left", file=sys.stderr, flush=True)
    return len(left)


def summary(seeds: list[int], out: Path, target: Path) -> None:
    """Writes the summary of all parts; a job without a row is shown as not run."""
    parts = ["# The campaign", (HERE / "summary_head.md").read_text(encoding="utf-8").strip()]
    for name in PARTS:
        if not (HERE / f"{name}.py").is_file():
            continue
        part, rows = importlib.import_module(name), rows_of(out / f"{name}.jsonl")
        command = f"`python tests/campaign/run.py {name} --seeds {','.join(map(str, seeds))}`"
        parts += [f"## {part.TITLE}", f"{command}. {made(rows)}"]
        parts.append(part.section(rows, part.jobs(seeds)).strip())
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def made(rows: list[dict[str, Any]]) -> str:
    """When, on what and of which code the rows are, and how long they took."""
    if not rows:
        return "Nothing of it was run."
    days = sorted({row["at"][:10] for row in rows})
    told = sorted({row["about"]["machine"] for row in rows})
    commits = list(dict.fromkeys(row["about"]["commit"] for row in rows))
    cpu = sum(row["cpu_s"] for row in rows) / 60
    return (
        f"{len(rows)} runs, {' to '.join(dict.fromkeys((days[0], days[-1])))}, "
        f"{'; '.join(told)}; commits {', '.join(commits)}; {cpu:.0f} minutes of CPU."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "summary"])
    parser.add_argument("--seeds", default="0,1,2", help="with commas between them")
    parser.add_argument("--only", default="", help="backends, with commas between them")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no job after so many")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "campaign")
    parser.add_argument("--summary", type=Path, default=HERE / "summary.md")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    only = frozenset(filter(None, given.only.split(",")))
    left = 0
    if given.part != "summary":
        left = run(given.part, seeds, given.out, given.minutes, only)
    summary(seeds, given.out, given.summary)
    if left:
        print(f"{left} jobs are left; the same command goes on with them.", file=sys.stderr)
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
