"""Kills: SIGKILL at random moments, in every backend; what is resumed ends as what was not killed.

The runs are those of tests/rl_backends/every_backend.py: a Llama of a few thousand weights, four
steps of two or three epochs over three minibatches, a checkpoint after every step and after every
second minibatch. Children are forked from one process that has imported torch already.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

TITLE = "Kills"
RUNS, KILLS = 4, 3
"""Runs of one job, and how often each is killed before it may end."""

PATIENCE_S = 120
PLACES = ("drawing or between steps", "inside the mu epochs", "in a checkpoint's write")
SAVES = {"save_every": 1, "save_every_minibatches": 2, "keep_checkpoints": 2}
PRELOADED = [
    "stepmark.rl_backends.loop",
    "stepmark.engines.transformers",
    "transformers.models.llama.modeling_llama",
]

Job = dict[str, Any]
Row = dict[str, Any]
Aim = Callable[[list[float], Path], bool]
"""Whether this is the moment, from what the child says and its run folder: the step that is
open, how many of its minibatches were begun, seconds of CPU."""


class Killed(NamedTuple):
    """Where a kill met a run."""

    place: str
    """One of ``PLACES``."""
    step: int
    """The step that was open, from 1; 0 before the first one."""
    minibatches: int
    """Losses of that step that were begun."""


@cache
def every() -> dict[str, Any]:
    """The cases, and the bandit that they run on."""
    folder = Path(__file__).resolve().parents[1] / "rl_backends"
    cases, bandit = (run_path(str(folder / name)) for name in ("every_backend.py", "conftest.py"))
    return {**cases, "Bandit": bandit["Bandit"]}


@cache
def forking() -> ForkServerContext:
    """Makes children in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def child(name: str, folder: str, said: Any) -> None:
    """Trains a case from wherever its folder stands; ``said`` is what the parent sees of it."""
    import torch

    from stepmark.rl_backends import Started, StepDone

    torch.set_num_threads(1)
    run = every()["Started"](every()["Bandit"], name, Path(folder), resume=True)
    backend = every()["backend_of"](name, **SAVES)
    losses = backend.losses

    def counted(*args: Any) -> Any:
        said[1] += 1
        said[2] = time.process_time()
        return losses(*args)

    def told(event: Any) -> None:
        said[2] = time.process_time()
        if isinstance(event, Started | StepDone):
            said[0], said[1] = event.step + 1, 0

    backend.losses = counted
    run.train(backend, told)


class Runs:
    """Trains a case in children, to its end or until a kill.

    Args:
        name: of the case.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cpu_s = 0.0
        """What the children computed, up to their last minibatch or event."""

    def finish(self, folder: Path) -> float:
        """Bring a run to its end; how long that took from its first event, in seconds."""
        process, said, begun = self._begin(folder)
        process.join(PATIENCE_S)
        if process.exitcode != 0:
            raise AssertionError(f"{self.name} in {folder} ended with {process.exitcode}")
        self.cpu_s += said[2]
        return time.monotonic() - begun

    def kill(self, folder: Path, aim: Aim | float) -> Killed | None:
        """Begin a run, or go on with it, and kill it at a moment; None where it had ended by then.

        Args:
            folder: a run, or where one will be.
            aim: looked at without pause; or seconds from the run's first event on.
        """
        process, said, begun = self._begin(folder)
        if isinstance(aim, float):
            time.sleep(max(0.0, begun + aim - time.monotonic()))
        else:
            _wait(process, lambda: aim(list(said), folder))
        process.kill()
        process.join()
        self.cpu_s += said[2]
        if process.exitcode == 0:
            return None
        if process.exitcode != -9:
            raise AssertionError(f"{self.name} in {folder} ended with {process.exitcode}")
        in_write = bool(list((folder / "checkpoints").glob(".*.part")))
        place = PLACES[2] if in_write else PLACES[1] if said[1] else PLACES[0]
        return Killed(place, int(said[0]), int(said[1]))

    def _begin(self, folder: Path) -> tuple[Any, Any, float]:
        """A child, what it says, and the moment of its first event."""
        said = forking().Array("d", [0.0, 0.0, 0.0])
        process = forking().Process(target=child, args=(self.name, str(folder), said))
        process.start()
        return process, said, _wait(process, lambda: said[0] > 0)


def _wait(process: Any, is_there: Callable[[], bool]) -> float:
    """The moment when it is there, or when the process has ended."""
    until = time.monotonic() + PATIENCE_S
    while not is_there() and process.is_alive():
        if time.monotonic() > until:
            process.kill()
            raise AssertionError(f"nothing happened for {PATIENCE_S} s")
        time.sleep(1e-4)
    return time.monotonic()


def fault(straight: Path, folder: Path) -> str | None:
    """What is wrong with a run that was killed and has ended; None when nothing is."""
    from stepmark.store import RunFolder, read_rows

    if (differs := every()["difference"](straight, folder)) is not None:
        return f"other {differs}"
    if left := [place.name for place in folder.rglob(".*.part")]:
        return f"left {left[0]}"
    samples = RunFolder.open(folder).samples
    for key in samples.verdict_keys():
        rows = read_rows(samples.folder / f"verdicts.{key}.jsonl")
        if len({(row["step"], row["id"], row["k"]) for row in rows}) != len(rows):
            return "marked twice"
    return None


def jobs(seeds: Sequence[int]) -> list[Job]:
    """Every backend for every seed."""
    return [{"seed": seed, "backend": name} for seed in seeds for name in every()["CASES"]]


def do(job: Job, folder: Path) -> Row:
    """Some runs of a backend, each killed a few times at random and then brought to its end."""
    name, rng = job["backend"], random.Random(f"{job['seed']} {job['backend']}")
    case = Runs(name)
    length = case.finish(folder / "straight")
    hits: list[Killed] = []
    faults: list[str] = []
    ended = 0
    for number in range(RUNS):
        place = folder / f"killed-{number}"
        for before in range(KILLS):
            hit = case.kill(place, rng.uniform(0, length / (1 + before)))
            if hit is None:
                ended += 1
                break
            hits.append(hit)
        case.finish(place)
        if (found := fault(folder / "straight", place)) is not None:
            faults.append(found)
    return {
        "runs": RUNS,
        "kills": len(hits),
        "ended before its kill": ended,
        "after a refresh": sum(hit.step > 2 for hit in hits) if _refreshes(name) else 0,
        "equal": RUNS - len(faults),
        "faults": faults,
        "cpu_s": case.cpu_s,
        **{place: sum(hit.place == place for hit in hits) for place in PLACES},
    }


def _refreshes(name: str) -> bool:
    return every()["CASES"][name].settings.get("outer", 1) > 1


def section(rows: Sequence[Row], asked: Sequence[Job]) -> str:
    """One table with a row per backend, over the seeds that were run; those not run are named."""
    from stepmark.report import markdown_table

    head = ("kills", *PLACES, "after a refresh", "runs", "equal")
    table: list[list[object]] = []
    for name in dict.fromkeys(job["backend"] for job in asked):
        mine = [row for row in rows if row["job"]["backend"] == name]
        found = [row["found"] for row in mine]
        ran = sorted({row["job"]["seed"] for row in mine})
        left = sorted({job["seed"] for job in asked if job["backend"] == name} - {*ran})
        wrong = sorted({fault for one in found for fault in one["faults"]})
        sums = [sum(one[key] for one in found) for key in head]
        numbers = sums if found else ["not run"] + [None] * 6
        table.append([name, _list(ran), _list(left), *numbers, ", ".join(wrong)])
    totals = [sum(row["found"][key] for row in rows) for key in head]
    table.append(["all", "", "", *totals, ""])
    columns = ("backend", "seeds run", "seeds not run", *head, "what differs")
    return "\n\n".join((INTRODUCTION, _how_many(rows, asked), markdown_table(columns, table)))


def _how_many(rows: Sequence[Row], asked: Sequence[Job]) -> str:
    """How many of the jobs that were asked for were run."""
    done = sum(job in [row["job"] for row in rows] for job in asked)
    left = "" if done == len(asked) else f"; {len(asked) - done} were not run"
    return f"{done} of {len(asked)} jobs (a backend and a seed each) were run{left}."


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


INTRODUCTION = """\
A run of four steps (mu 2 or 3, three minibatches) is killed with SIGKILL up to three times, each
time at a moment drawn uniformly from what a straight run takes (from a half and a third of that
when it was killed before), and then brought to its end. It is equal where weights, optimizers,
critic, reference, reward models, metrics, samples, verdicts and step scores are those of the
straight run bit for bit, no completion was marked twice, and nothing half-made is left. Places:
what the kill met."""
