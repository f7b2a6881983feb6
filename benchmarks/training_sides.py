"""Two processes that take turns, and what they cost."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tiny import Shape

from stepmark.errors import SetupError

HERE = Path(__file__).resolve().parent


class Side:
    """A process of `training_child.py` that does a step whenever it is asked."""

    def __init__(self, name: str, folder: Path, shape: Shape) -> None:
        words = [sys.executable, "training_child.py", "step", name, str(folder), json.dumps(shape)]
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed by close()
        self.process = subprocess.Popen(
            words, cwd=HERE, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors,
        )  # fmt: skip
        self.read()

    def read(self) -> dict[str, Any]:
        """What the process tells next; other lines on its output are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"cpu_s"'):
                return json.loads(line)
        raise SetupError(_ended(self.name, self.errors))

    def step(self) -> dict[str, Any]:
        """One whole step."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End the process; idempotent."""
        self.process.kill()
        self.process.wait()
        self.errors.close()


def _ended(name: str, errors: Any) -> str:
    errors.seek(0)
    return (
        f"The process of {name} ended before it told its time:\n{errors.read()[-1500:]}\n"
        "Run benchmarks/training_child.py by hand to see more, or `make .venv-trl/.ready`."
    )


@contextlib.contextmanager
def sides(names: Sequence[str], folder: Path, shape: Shape) -> Iterator[dict[str, Side]]:
    """A process for each side, ended at the end."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Side] = {}
        for name in names:
            found[name] = Side(name, folder, shape)
            stack.callback(found[name].close)
        yield found


def steps(
    names: Sequence[str], folder: Path, shape: Shape, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """What each step cost each side, one after the other; a first one of each is left out."""
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with sides(names, folder, shape) as running:
        first = {name: side.step() for name, side in running.items()}
        for turn in range(rounds):
            for name in names if turn % 2 == 0 else reversed(names):
                told[name].append({**first[name], **running[name].step()})
    return told


def peak(mode: str, folder: Path, shape: Shape) -> dict[str, Any]:
    """Peak memory of one pass in a fresh process, in MB over what the model holds."""
    words = [sys.executable, "training_child.py", "memory", mode, str(folder), json.dumps(shape)]
    done = subprocess.run(words, cwd=HERE, text=True, capture_output=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith('{"peak_mb"'):
            return json.loads(line)
    raise SetupError(f"The process of {mode} told no memory:\n{done.stderr[-1500:]}")


def in_turn(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of functions that return them, one after the other, after one of each."""
    for run in runs.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in runs if turn % 2 == 0 else reversed(runs):
            found[name].append(runs[name]())
    return found


def row(
    name: str, unit: str, ours: Sequence[float], peer: Sequence[float], *, least: float | None
) -> dict[str, Any]:
    """A line of the table: costs of both sides round by round, and how many times ours the peer's.

    Args:
        name: what was measured.
        unit: of the costs.
        ours: per round, less is better.
        peer: per round.
        least: the ratio to reach; None where there is no goal.
    """
    ratios = [other / own for own, other in zip(ours, peer, strict=True)]
    value = median(ratios)
    return {
        "name": name,
        "unit": unit,
        "ours": median(ours),
        "peer": median(peer),
        "ratio": value,
        "low": min(ratios),
        "high": max(ratios),
        "of_least": min(peer) / min(ours),
        "goal": least,
        "reached": None if least is None else value >= least,
    }
