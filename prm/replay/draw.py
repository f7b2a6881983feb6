r"""Which rows a refresh learns from: all that is new, and a stratified draw of what was there.

DeepSeekMath (arXiv:2402.03300), section 4.1.4, refreshes with "10 % of historical data" and leaves
open what that is a share of. Two readings, with :math:`n` new rows and a history of :math:`h`:

* ``mixture`` (default): :math:`\rho n / (1 - \rho)` earlier rows, so that they are that share of
  what is learnt from; 6,000 new rows get 667.
* ``history``: :math:`\rho h` earlier rows.

Both numbers are in the mixture. Strata are round, whether there is an error, number of steps and
source; each gives its share to within a row. The draw is a pure function of the buffer's content,
the seed and the round.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from stepmark.errors import ConfigError
from stepmark.seeds import derive_seed
from stepmark.store import text_hash
from stepmark.types import LabelledSteps

from .buffer import ReplayBuffer
from .records import Entry, Stratum

__all__ = ["Balance", "Mixture", "Reading", "StratumCount", "Weight", "draw", "quotas"]

Reading = Literal["mixture", "history"]
Weight = Literal["proportional", "recency", "uniform-round"]


class Balance(NamedTuple):
    """Bounds of the share of rows with an error among all that are learnt from."""

    low: float = 0.35
    high: float = 0.65


BALANCE = Balance()


class StratumCount(NamedTuple):
    """How much of a stratum of the history was drawn."""

    stratum: Stratum
    there: int
    drawn: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a refresh learns from."""

    round: int
    new: tuple[LabelledSteps, ...]
    replay: tuple[LabelledSteps, ...]
    strata: tuple[StratumCount, ...]
    """Of the whole history, by stratum."""
    history: int
    """Rows of earlier rounds that may be drawn."""
    admitted: int
    """New rows before class balance took some away."""
    by_mixture: int
    """Earlier rows that the reading ``mixture`` asks for."""
    by_history: int
    """Earlier rows that the reading ``history`` asks for."""
    has_error: float
    """Share of rows with an error, after all."""
    digest: str
    """Hash of the sorted ids of all rows."""

    def to_row(self) -> dict[str, Any]:
        """The numbers as plain values."""
        strata = [
            {**count.stratum._asdict(), "there": count.there, "drawn": count.drawn}
            for count in self.strata
        ]
        return {
            "n_new": len(self.new),
            "n_replay": len(self.replay),
            "n_history": self.history,
            "n_admitted": self.admitted,
            "replay_by_mixture": self.by_mixture,
            "replay_by_history": self.by_history,
            "share_with_error": self.has_error,
            "rows_hash": self.digest,
            "strata": strata,
        }


def draw(
    buffer: ReplayBuffer,
    round: int,
    *,
    history_share: float = 0.1,
    seed: int = 0,
    reading: Reading = "mixture",
    weight: Weight = "proportional",
    balance: Balance | None = BALANCE,
) -> Mixture:
    """The rows that the refresh of a round learns from; equal buffers and seeds give equal ones.

    Class balance takes rows with an error, or rows without, from the *new* part only, until the
    share of the former lies within the bounds or no row of that kind is left.

    Args:
        buffer: holds the round whole.
        round: whose rows are new; those of all earlier rounds are history.
        history_share: see the module; with ``mixture`` below 1, with ``history`` up to 1.
        seed: of the draw.
        reading: of what the history is a share of.
        weight: ``proportional`` draws every stratum alike; ``recency`` halves the weight of a row
            with every round that it is older; ``uniform-round`` draws as many of every round.
        balance: None leaves classes as they are.

    Raises:
        ConfigError: a share or a name is out of range, or bounds cross.
        RunError: the round is missing or half-written.
    """
    _check(history_share, reading, weight, balance)
    buffer.check(round)
    all_new = buffer.entries(until=round, round=round, split="train")
    there = [e for e in buffer.entries(until=round, split="train") if e.round < round]
    words = (seed, "replay", round, buffer.digest(round))
    new = _balanced(all_new, [], balance, derive_seed(*words, "alone"))
    wanted = {
        "mixture": _rounded(history_share / (1 - history_share) * len(new))
        if history_share < 1
        else len(there),
        "history": _rounded(history_share * len(there)),
    }
    most = min(wanted[reading], len(there))
    drawn, counts = _stratified(there, most, _weights(there, round, weight), derive_seed(*words))
    new = _balanced(new, drawn, balance, derive_seed(*words, "mixed"))
    chosen = [*new, *drawn]
    errors = sum(entry.has_error for entry in chosen)
    return Mixture(
        round=round,
        new=tuple(buffer.rows(new)),
        replay=tuple(buffer.rows(drawn)),
        strata=counts,
        history=len(there),
        admitted=len(all_new),
        by_mixture=wanted["mixture"],
        by_history=wanted["history"],
        has_error=errors / len(chosen) if chosen else 0.0,
        digest=text_hash("\n".join(sorted(entry.id for entry in chosen))),
    )


def quotas(sizes: Sequence[int], weights: Sequence[float], total: int) -> list[int]:
    """How many of each part make up a total: by size times weight, to within one (Hamilton).

    No part gives more than it has; what it cannot give goes to the others by the same rule.

    >>> quotas([60, 30, 10], [1, 1, 1], 10), quotas([60, 30, 10], [0, 0, 1], 20)
    ([6, 3, 1], [7, 3, 10])
    """
    given = [0] * len(sizes)
    left, open_ = min(total, sum(sizes)), set(range(len(sizes)))
    while left:
        asked = {n: sizes[n] * weights[n] for n in open_}
        if not sum(asked.values()):
            asked = {n: float(sizes[n]) for n in open_}
        exact = {n: left * part / sum(asked.values()) for n, part in asked.items()}
        if full := [n for n in sorted(open_) if exact[n] > sizes[n]]:
            for n in full:
                given[n] = sizes[n]
            left -= sum(sizes[n] for n in full)
            open_ -= set(full)
            continue
        floors = {n: math.floor(part + 1e-9) for n, part in exact.items()}
        rest = left - sum(floors.values())
        first = sorted(open_, key=lambda n: (floors[n] - exact[n], n))[:rest]
        for n in open_:
            given[n] = floors[n] + (n in first)
        left = 0
    return given


def _rounded(value: float) -> int:
    """The nearest whole number, halves up."""
    return math.floor(value + 0.5)


def _weights(there: Sequence[Entry], round: int, weight: Weight) -> Callable[[Stratum], float]:
    rounds = Counter(entry.round for entry in there)
    if weight == "recency":
        return lambda stratum: 0.5 ** (round - 1 - stratum.round)
    if weight == "uniform-round":
        return lambda stratum: 1 / rounds[stratum.round]
    return lambda _: 1.0


def _stratified(
    there: Sequence[Entry], total: int, weight: Callable[[Stratum], float], seed: int
) -> tuple[list[Entry], tuple[StratumCount, ...]]:
    strata: dict[Stratum, list[Entry]] = {}
    for entry in there:
        strata.setdefault(entry.stratum, []).append(entry)
    ordered: Mapping[Stratum, list[Entry]] = dict(sorted(strata.items()))
    sizes = [len(own) for own in ordered.values()]
    numbers = quotas(sizes, [weight(stratum) for stratum in ordered], total)
    drawn: list[Entry] = []
    counts: list[StratumCount] = []
    for (stratum, own), number in zip(ordered.items(), numbers, strict=True):
        chance = random.Random(derive_seed(seed, *map(str, stratum)))
        drawn += chance.sample(own, number)
        counts.append(StratumCount(stratum, len(own), number))
    return sorted(drawn, key=lambda entry: entry.id), tuple(counts)


def _balanced(
    new: Sequence[Entry], drawn: Sequence[Entry], balance: Balance | None, seed: int
) -> list[Entry]:
    """The new rows without those of the larger class that put the mixture out of bounds."""
    kinds = {kind: [e for e in new if e.has_error is kind] for kind in (True, False)}
    if balance is None or not all(kinds.values()):
        return list(new)
    old = {kind: sum(e.has_error is kind for e in drawn) for kind in kinds}
    wrong = len(kinds[True]) + old[True]
    right = len(kinds[False]) + old[False]
    limits = {
        True: math.floor(balance.high / (1 - balance.high) * right + 1e-9),
        False: math.floor((1 - balance.low) / balance.low * wrong + 1e-9),
    }
    kept: list[Entry] = []
    for kind, own in kinds.items():
        most = max(limits[kind] - old[kind], 0)
        chance = random.Random(derive_seed(seed, str(kind)))
        kept += own if len(own) <= most else chance.sample(own, most)
    return sorted(kept, key=lambda entry: entry.id)


def _check(share: float, reading: str, weight: str, balance: Balance | None) -> None:
    for name, value, allowed in (("reading", reading, Reading), ("weight", weight, Weight)):
        if value not in get_args(allowed):
            raise ConfigError(
                f"replay.{name} is {value!r}; allowed are {', '.join(get_args(allowed))}."
            )
    if not 0 <= share <= 1 or (share == 1 and reading == "mixture"):
        top = "below 1" if reading == "mixture" else "up to 1"
        raise ConfigError(
            f"replay.share is {share:g}; with the reading {reading!r} it lies from 0 on and {top}. "
            'To replay all history, set replay.share = 1 and replay.reading = "history".'
        )
    if balance is not None and not 0 < balance.low <= 0.5 <= balance.high < 1:
        raise ConfigError(
            f"The balance is {balance.low:g} to {balance.high:g}; its bounds lie in (0, 1) with "
            "one half between them. Give such as 0.35 and 0.65."
        )
