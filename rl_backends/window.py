"""The window of a step: what it learns from, how far that has come, what was measured on the way.

A checkpoint inside of the mu epochs keeps it, so that a resumed run draws, marks and prepares
nothing again and goes on with the very next minibatch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

from stepmark.errors import RunError
from stepmark.seeds import derive_seed
from stepmark.training.sample import TrainingSample

from .metrics import Totals

__all__ = ["Minibatch", "Window", "split"]


def split(samples: Sequence[TrainingSample], parts: int, seed: int) -> list[list[TrainingSample]]:
    """The samples in at most ``parts`` minibatches of whole groups, shuffled by the seed alone."""
    groups = list(dict.fromkeys(sample.group for sample in samples))
    random.Random(seed).shuffle(groups)
    parts = min(parts, len(groups))
    bounds = [len(groups) * part // parts for part in range(parts + 1)] if parts else []
    chosen = [set(groups[low:high]) for low, high in pairwise(bounds)]
    return [[sample for sample in samples if sample.group in names] for names in chosen]


class Minibatch(NamedTuple):
    """The samples of one optimizer step, and the pass over the window that they belong to."""

    epoch: int
    """From 0."""
    samples: list[TrainingSample]


class Order(NamedTuple):
    """What the order of a window's minibatches depends on."""

    mu: int
    """Passes over the window."""
    minibatches: int
    """Of each pass."""
    seed: int
    """Of the run."""


@dataclass(slots=True)
class Window:
    """One step between its completions and its last optimizer step."""

    step: int
    """From 1."""
    samples: Sequence[TrainingSample]
    """With their old and reference log-probs, advantages, values and returns."""
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    """Metrics of the step that were known before anything was learnt from it."""
    trains_policy: bool = True
    """See `Prepared.trains_policy`."""
    done: int = 0
    """Minibatches that were learnt from, over all epochs."""
    totals: Totals = field(default_factory=Totals)
    """Metrics of those minibatches, added up."""
    order: Order | None = None
    """Of the minibatches; None before the first one."""

    def left(self, mu: int, minibatches: int, seed: int) -> Iterator[Minibatch]:
        """The minibatches that are still to be learnt from; their order is the run's seed's.

        Raises:
            RunError: the window was begun in another order.
        """
        order = Order(mu, minibatches, seed)
        if self.order not in (None, order):
            self._refuse(self.order, order)
        self.order = order
        number = 0
        for epoch in range(mu):
            own = derive_seed(seed, "minibatches", self.step, epoch)
            for samples in split(self.samples, minibatches, own):
                if number >= self.done:
                    yield Minibatch(epoch, samples)
                number += 1

    def _refuse(self, was: Order, now: Order) -> None:
        kept, given = was._asdict(), now._asdict()
        other = [name for name in kept if kept[name] != given[name]]
        raise RunError(
            f"Step {self.step} was left after {self.done} minibatches, in the order of "
            f"{_named(kept, other)}; now it is {_named(given, other)}, which would repeat some and "
            f"skip others. Resume with {_named(kept, other)}, or begin in another folder."
        )

    def to_row(self) -> dict[str, Any]:
        """The window in plain values and tensors, as a checkpoint keeps it."""
        return {
            "step": self.step,
            "samples": [sample.to_row() for sample in self.samples],
            "measured": dict(self.measured),
            "trains_policy": self.trains_policy,
            "done": self.done,
            "sums": dict(self.totals.sums),
            "updates": self.totals.updates,
            "order": None if self.order is None else list(self.order),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The window that `to_row` described."""
        totals = Totals()
        totals.sums, totals.updates = dict(row["sums"]), row["updates"]
        samples = [TrainingSample.from_row(sample) for sample in row["samples"]]
        order = row.get("order")
        return cls(
            row["step"],
            samples,
            row["measured"],
            row["trains_policy"],
            row["done"],
            totals,
            None if order is None else Order(*order),
        )


def _named(order: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {order[name]}" for name in names)
