"""Which rows each optimizer step learns from: a pure function of the seed and the step."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from math import ceil
from typing import NamedTuple

from stepmark.seeds import derive_seed

__all__ = ["Batches", "Place", "shares"]


class Place(NamedTuple):
    """A batch of an epoch."""

    epoch: int
    """From 0."""
    rows: list[int]
    """Numbers of the rows, in the order in which they were drawn."""


class Batches:
    """The batches of all epochs; no order is stored, so a resumed run cannot drift.

    Args:
        rows: how many there are.
        size: rows of a batch; the last one of an epoch may be smaller, one of units larger.
        seed: of the run.
        rare: which rows are of one kind of two; a balanced epoch has as many of either, all of the
            rarer kind. None for an epoch of all rows.
        unit: rows of equal value stay together; None for each by itself.
    """

    def __init__(
        self,
        rows: int,
        size: int,
        seed: int,
        rare: Sequence[bool] | None = None,
        unit: Callable[[int], Hashable] | None = None,
    ) -> None:
        self.rows, self.size, self.seed = rows, size, seed
        self.rare, self.unit = rare, unit
        self._epoch, self._batches = -1, list[list[int]]()
        self._before = [0]

    @property
    def per_epoch(self) -> int:
        """Batches of the first epoch."""
        return len(self.of_epoch(0))

    def steps(self, epochs: float) -> int:
        """Optimizer steps that so many epochs are, at least one."""
        return max(1, ceil(self.per_epoch * epochs - 1e-9))

    def of_step(self, step: int) -> Place:
        """The batch of an optimizer step, from 1."""
        while self._before[-1] < step:
            counted = len(self._before) - 1
            self._before.append(self._before[-1] + len(self.of_epoch(counted)))
        epoch = bisect_left(self._before, step) - 1
        return Place(epoch, self.of_epoch(epoch)[step - 1 - self._before[epoch]])

    def of_epoch(self, epoch: int) -> list[list[int]]:
        """All batches of an epoch."""
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._drawn(epoch)
        return self._batches

    def _drawn(self, epoch: int) -> list[list[int]]:
        draw = random.Random(derive_seed(self.seed, "order", epoch))
        units: dict[Hashable, list[int]] = {}
        for row in self._chosen(draw):
            units.setdefault(row if self.unit is None else self.unit(row), []).append(row)
        order = list(units.values())
        draw.shuffle(order)
        batches: list[list[int]] = [[]]
        for rows in order:
            if batches[-1] and len(batches[-1]) + len(rows) > self.size:
                batches.append([])
            batches[-1] += rows
        return batches

    def _chosen(self, draw: random.Random) -> list[int]:
        if self.rare is None:
            return list(range(self.rows))
        kinds = (
            [n for n in range(self.rows) if bool(self.rare[n]) == wanted]
            for wanted in (True, False)
        )
        few, many = sorted(([*kind] for kind in kinds), key=len)
        return sorted(few + draw.sample(many, len(few)))


def shares(
    rows: Sequence[int],
    count: int,
    size: Callable[[int], int],
    unit: Callable[[int], Hashable] | None = None,
) -> list[list[int]]:
    """The rows of a batch divided among processes: about as much work each, every row once.

    The largest unit goes first, to the process that has least; within a share rows keep their
    order. With fewer units than processes some have nothing.

    Args:
        rows: of the batch.
        count: of the processes.
        size: how much work a row is.
        unit: rows of equal value stay together; None for each by itself.

    >>> shares([5, 6, 7], 2, size=lambda row: row)
    [[7], [5, 6]]
    """
    units: dict[Hashable, list[int]] = {}
    for row in rows:
        units.setdefault(row if unit is None else unit(row), []).append(row)
    work = sorted(units.values(), key=lambda some: -sum(map(size, some)))
    loads, owner = [0] * count, dict[int, int]()
    for some in work:
        least = loads.index(min(loads))
        loads[least] += sum(map(size, some))
        owner |= dict.fromkeys(some, least)
    return [[row for row in rows if owner[row] == index] for index in range(count)]
