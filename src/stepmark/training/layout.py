"""Samples end to end in one row, a shared prompt once: nothing is padded, nothing done twice.

::

    prompt A | completion A1 | completion A2 | ... | prompt B + completion B1 | ...

Linear layers and the embedding see each token once. Attention runs in blocks: see
`stepmark.training.attention`. The cost model, in the work of one layer of hidden width ``D``, for
``G`` completions of ``L`` tokens behind a prompt of ``P``:

* a token of a row costs about ``24 D^2`` in linear layers, so sharing the prompt saves
  ``24 D^2 P (G - 1)``;
* attention sees the rows that it would see without sharing, whose keys and values are copied
  together first: about ``COPYING D`` for each of their ``G (P + L)`` tokens;
* queries of a completion are taken alone, under a mask, ``L (P + L)`` products, or with the
  prompt's, as a causal square, whose upper half is left out by tiles of keys: the one that is less.

A prompt is shared where the first number exceeds the second: by this model no layout costs more
than plain packing, which is the same row with nothing shared. Prompts of one length whose
completions have the same lengths stand together, so that attention takes them at once. The last
layer's MLP runs only where a sampled token is predicted: `Layout.kept_K`.

Shapes: ``T`` tokens of the row, ``N`` sampled tokens of all samples, ``K`` tokens that predict one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from .sample import TrainingSample

__all__ = ["Block", "Layout", "is_shared", "lay_end_to_end"]

COPYING = 120
"""Products in whose time one token's keys and values are copied, over the hidden width, forward and
backward: an estimate on the safe side (six numbers moved, each in the time of 20 products)."""

TILES = {"cpu": 512}
"""Keys that attention takes at once: a causal square computes whole tiles (torch's CPU kernel)."""
TILE = 64

FEW = 1 / 16
"""Share of tokens below which leaving them out of an MLP is not worth the copies."""


class Block(NamedTuple):
    """Rows of one length that attend to themselves and, where there is one, to a prompt."""

    rows: int
    """They stand one behind the other."""
    length: int
    prompt: int = 0
    """Place among the blocks of the prompts that the rows share."""
    prompts: int = 1
    """Rows of that block: the first ``rows / prompts`` share the first one, and so on."""
    shared: int = 0
    """Tokens of a prompt; 0 where the rows hold their own."""
    mask: Bool[Tensor, "L K"] | None = None
    """What queries of a row see; None for a causal square."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """One row for a forward pass, and where in it sampled tokens are predicted."""

    ids_T: Int[Tensor, " T"]
    positions_T: Int[Tensor, " T"]
    places_N: Int[Tensor, " N"]
    """The token that predicts each sampled token: one before it."""
    targets_N: Int[Tensor, " N"]
    blocks: tuple[Block, ...]
    """In the order of the row; together they are all of it."""
    kept_K: Int[Tensor, " K"] | None = None
    """The tokens that predict a sampled one, rising; None where that is nearly all of them."""


def is_shared(prompt: int, completions: Sequence[int], width: int) -> bool:
    """Whether completions of these lengths should share their prompt: the cost model above.

    >>> is_shared(150, [1000] * 16, width=896), is_shared(1, [1000] * 16, width=896)
    (True, False)
    """
    saved = 24 * width * prompt * (len(completions) - 1)
    return saved > COPYING * sum(prompt + length for length in completions)


def lay_end_to_end(
    samples: Sequence[TrainingSample], device: torch.device, width: int, *, share: bool = True
) -> Layout:
    """The samples in one row; the last token of each predicts nothing and is left out.

    Args:
        samples: in any order; results come back in theirs.
        device: where the tensors go.
        width: hidden width of the model, for the cost model.
        share: False repeats every prompt: plain packing.
    """
    families: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        families[sample.prompt_ids].append(place)
    row, alone = _Row(samples, device), list[int]()
    alike: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    for prompt, members in families.items():
        lengths = sorted(len(samples[place].ids) for place in members)
        if share and len(members) > 1 and is_shared(len(prompt), lengths, width):
            alike[len(prompt), *lengths].append(members)
        else:
            alone += members
    for some in alike.values():
        row.add_families(some)
    row.add_alone(alone)
    return row.finished()


class _Row:
    """A row while it is written."""

    def __init__(self, samples: Sequence[TrainingSample], device: torch.device) -> None:
        self.samples, self.device = samples, device
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.places: list[list[int]] = [[] for _ in samples]
        self.blocks: list[Block] = []

    def add_families(self, families: Sequence[Sequence[int]]) -> None:
        """Prompts of one length, and behind them their completions, those of one length together.

        Every prompt has as many completions of a length as the others.
        """
        block, ends = len(self.blocks), list[int]()
        shared = len(self.samples[families[0][0]].prompt_ids)
        for members in families:
            self.ids += self.samples[members[0]].prompt_ids
            self.positions += range(shared)
            ends.append(len(self.ids) - 1)
        self.blocks.append(Block(len(families), shared))
        for same in zip(*(self._by_length(members) for members in families), strict=True):
            own = len(self.samples[same[0][0]].ids) - 1
            for end, members in zip(ends, same, strict=True):
                for place in members:
                    here = len(self.ids)
                    self.places[place] = [end, *range(here, here + own)]
                    self.ids += self.samples[place].ids[:-1]
                    self.positions += range(shared, shared + own)
            if own:
                mask = self._mask(own, shared) if self._is_masked(own, shared) else None
                rows = len(families) * len(same[0])
                self.blocks.append(Block(rows, own, block, len(families), shared, mask))

    def add_alone(self, members: Sequence[int]) -> None:
        """Samples with their own prompts, those of one length together."""
        for same in self._by_length(members):
            length = self.samples[same[0]].length - 1
            for place in same:
                sample, here = self.samples[place], len(self.ids)
                self.places[place] = list(range(here + len(sample.prompt_ids) - 1, here + length))
                self.ids += (*sample.prompt_ids, *sample.ids[:-1])
                self.positions += range(length)
            self.blocks.append(Block(len(same), length))

    def finished(self) -> Layout:
        """The row as tensors."""
        places = [place for some in self.places for place in some]
        targets = [token for sample in self.samples for token in sample.ids]

        def made(numbers: list[int]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.long, device=self.device)

        numbers = (made(self.ids), made(self.positions), made(places), made(targets))
        kept = sorted(set(places))
        is_few = len(self.ids) - len(kept) < FEW * len(self.ids)
        return Layout(*numbers, tuple(self.blocks), None if is_few else made(kept))

    def _by_length(self, members: Sequence[int]) -> list[list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for place in members:
            found[self.samples[place].length].append(place)
        return [found[length] for length in sorted(found)]

    def _is_masked(self, own: int, shared: int) -> bool:
        """Whether queries under a mask are less work than a causal square: the cost model above."""
        whole, tile = shared + own, TILES.get(self.device.type, TILE)
        return own * whole < min(whole * whole, whole * (whole + tile) // 2)

    def _mask(self, own: int, shared: int) -> Tensor:
        seen_LK = torch.ones(own, shared + own, dtype=torch.bool, device=self.device)
        return seen_LK.tril(diagonal=shared)
