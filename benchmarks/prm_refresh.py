"""How much of a refresh is spent outside the model: 6,000 new rows, 10 % of replay, a tiny model.

    OMP_NUM_THREADS=1 python benchmarks/prm_refresh.py --out benchmarks/results.json

Everything from the rows in memory to the published model is counted, in CPU seconds of one thread:
admission, draw, tokens, checkpoints, figures. Inside the model are forward passes of its modules,
backward passes and optimizer steps, and nothing else; the loss itself counts as outside. A small
refresh goes before, so that what Python loads once is not counted. The model is that of
``examples/tiny_prm.py``, 126,000 weights: with any larger one the share is smaller, as most of what
is outside does not depend on it. The figures go into the file under ``prm_refresh``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import tiny_prm
import torch
from about import about

from stepmark.prm import Base, EncodingSettings, base_model, save_step_model
from stepmark.prm.checkpoint import card_of, self_test_rows
from stepmark.prm.formats.rows import StepmarkRows
from stepmark.prm.replay import RefreshConfig, ReplayBuffer, refresh
from stepmark.store import write_json
from stepmark.types import LabelledSteps

NEW, HISTORY = 7_200, 12_000
GOAL = 0.05


class Inside:
    """CPU seconds in the outermost call of any of some functions."""

    def __init__(self) -> None:
        self.seconds, self.depth = 0.0, 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*given: Any, **named: Any) -> Any:
            self.depth += 1
            started = time.process_time()
            try:
                return function(*given, **named)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.seconds += time.process_time() - started

        return timed


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--quick", action="store_true", help="few rows: does it run")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = measure(*(300, 400) if chosen.quick else (NEW, HISTORY))
    facts = about([], seed=0, rounds=1, quick=chosen.quick)
    facts["command"] = "python benchmarks/prm_refresh.py" + (" --quick" if chosen.quick else "")
    known = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {}
    write_json(chosen.out, {**known, "prm_refresh": {"about": facts, **found}})
    print(json.dumps(found, indent=1))
    return 0


def measure(new: int, history: int) -> dict[str, Any]:
    """CPU seconds by part, and the share outside the model."""
    inside = Inside()
    with TemporaryDirectory(prefix="stepmark-") as place:
        model = make_model(Path(place))
        buffer = ReplayBuffer(Path(place) / "buffer")
        buffer.add(rows_of(history, 0), 0)
        warm_up(model, Path(place) / "other")
        fresh = rows_of(new, 1)
        config = RefreshConfig.model_validate(
            {"gate": {"new": "any", "max_old_drop": 1}, "algorithm": {"learning_rate": 1e-3}}
        )
        torch.nn.Module.__call__ = inside(torch.nn.Module.__call__)
        torch.Tensor.backward = inside(torch.Tensor.backward)
        torch.optim.AdamW.step = inside(torch.optim.AdamW.step)
        started = time.process_time()
        report = buffer.add(fresh, 1)
        admitted = time.process_time()
        done = refresh(model, buffer, 1, config)
        ended = time.process_time()
    whole = ended - started
    return {
        "rows": {"new": report.train, "replayed": done.counts["n_replay"]},
        "cpu_s": {
            "all": round(whole, 2),
            "inside_the_model": round(inside.seconds, 2),
            "admission": round(admitted - started, 2),
            "outside_besides": round(ended - admitted - inside.seconds, 2),
        },
        "wall_s_by_part": {name: round(value, 2) for name, value in done.seconds.items()},
        "share_outside": round(1 - inside.seconds / whole, 4),
        "goal": GOAL,
    }


def warm_up(model: Path, folder: Path) -> None:
    """A small refresh first: what Python loads once in a process is not counted."""
    buffer = ReplayBuffer(folder)
    buffer.add(rows_of(100, 3), 0)
    buffer.add(rows_of(100, 4), 1)
    refresh(model, buffer, 1)


def rows_of(count: int, seed: int) -> list[LabelledSteps]:
    """Generated solutions."""
    reader = StepmarkRows()
    return [found for row in tiny_prm.rows(count, seed) for found in reader.labelled(row)]


def make_model(place: Path) -> Path:
    """A reward model with drawn weights; what it says is of no matter here."""
    base = tiny_prm.make_base(place / "base")
    model = base_model(Base(str(base), from_scratch=True, initializer_range=0.1), device="cpu")
    encoding = EncodingSettings(**tiny_prm.settings(base, base, 0, 1)["encoding"])
    card = card_of(model, encoding=encoding, self_test=self_test_rows(rows_of(3, 2)))
    save_step_model(place / "prm", model, card)
    return place / "prm"


if __name__ == "__main__":
    sys.exit(main())
