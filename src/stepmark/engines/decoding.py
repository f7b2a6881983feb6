"""One batch of completions: prefill, then one token for every row until all have ended.

Shapes: ``B`` rows still in the batch, ``R`` rows of the whole batch, ``M`` tokens of a row at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stepmark.types import Finish, Prompt, Sampling

from .drawing import draw, uniforms
from .padded import PaddedPrompts
from .sharing import SharedPrompts, can_share

__all__ = ["Decoding", "Ended", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to be drawn."""

    prompt: Prompt
    group: int
    """Place of the prompt among those to be completed."""
    index: int
    seed: int


class Ended(NamedTuple):
    """One completion that has ended."""

    row: Row
    ids: list[int]
    logps: list[float]
    finish: Finish


class Decoding:
    """The state of one batch; `advance` runs until at least one completion has ended.

    Each prompt is read once, and prompts of equal ids are one; where the model can, keys and values
    of a prompt are held once as well, and one that begins another is read with it. Rows that ended
    leave the batch when they are a quarter of it.

    Args:
        model: a causal model of transformers, in eval mode whenever `advance` runs.
        rows: rows of equal prompts stand together.
        sampling: already checked.
        eos_ids: each of them ends a completion, as its last token.
        ended_by_text: for stop strings: which of the rows' ids so far hold one.
    """

    def __init__(
        self,
        model: Any,
        rows: Sequence[Row],
        sampling: Sampling,
        eos_ids: Sequence[int],
        ended_by_text: Callable[[list[list[int]]], list[bool]] | None = None,
    ) -> None:
        self.rows = rows
        self.sampling = sampling
        self.ended_by_text = ended_by_text
        self.device = next(model.parameters()).device
        self.eos_ids = torch.tensor(list(eos_ids), device=self.device, dtype=torch.long)
        count, width = len(rows), sampling.max_tokens
        self.uniforms_RM = uniforms([row.seed for row in rows], width).to(self.device)
        self.ids_RM = torch.zeros(count, width, dtype=torch.long, device=self.device)
        self.logps_RM = torch.zeros(count, width, device=self.device)
        self.places_B = torch.arange(count, device=self.device)
        """Row of the whole batch that each row still computed stands for."""
        self.live_B = torch.ones(count, dtype=torch.bool, device=self.device)
        self.step = 0
        self.tokens_B: Tensor | None = None
        order = {ids: place for place, ids in enumerate(dict.fromkeys(r.prompt.ids for r in rows))}
        batch = SharedPrompts if can_share(model) else PaddedPrompts
        self.batch = batch(
            model,
            list(order),
            [order[row.prompt.ids] for row in rows],
            width,
        )

    @property
    def tokens_read(self) -> int:
        """Tokens of prompts that went through the model."""
        return self.batch.tokens_read

    @property
    def done(self) -> bool:
        """Every completion has ended."""
        return not bool(self.live_B.any())

    @torch.no_grad()
    def advance(self) -> list[Ended]:
        """Draw tokens until at least one more completion has ended; those that have."""
        while True:
            tokens_B = self.tokens_B
            logits_BV = self.batch.read() if tokens_B is None else self.batch.go_on(tokens_B)
            drawn_B = self.uniforms_RM[self.places_B, self.step]
            self.tokens_B, logps_B = draw(logits_BV, drawn_B, self.sampling)
            self.ids_RM[self.places_B, self.step] = self.tokens_B
            self.logps_RM[self.places_B, self.step] = logps_B
            self.step += 1
            stopped_B = torch.isin(self.tokens_B, self.eos_ids) & self.live_B
            if self.ended_by_text is not None:
                stopped_B |= self._by_text()
            over_B = self.live_B if self.step == self.sampling.max_tokens else stopped_B
            if bool(over_B.any()):
                ended = self._take(over_B, stopped_B)
                self.live_B = self.live_B & ~over_B
                self._shrink()
                return ended

    def _by_text(self) -> Tensor:
        places = self.places_B[self.live_B]
        so_far: list[list[int]] = self.ids_RM[places, : self.step].tolist()
        assert self.ended_by_text is not None
        hits = torch.zeros_like(self.live_B)
        hits[self.live_B] = torch.tensor(self.ended_by_text(so_far), device=self.device)
        return hits

    def _take(self, over_B: Tensor, stopped_B: Tensor) -> list[Ended]:
        places = self.places_B[over_B]
        ids: list[list[int]] = self.ids_RM[places, : self.step].tolist()
        logps: list[list[float]] = self.logps_RM[places, : self.step].tolist()
        stopped: list[bool] = stopped_B[over_B].tolist()
        return [
            Ended(self.rows[place], ids[i], logps[i], "stop" if stopped[i] else "length")
            for i, place in enumerate(places.tolist())
        ]

    def _shrink(self) -> None:
        """Compute only rows that still run, once a quarter of the rows has ended."""
        live = int(self.live_B.sum())
        if live == 0 or live > 0.75 * len(self.live_B):
            return
        kept_B = self.live_B.nonzero().squeeze(-1)
        if not self.batch.keep(kept_B):
            return
        assert self.tokens_B is not None
        self.tokens_B = self.tokens_B[kept_B]
        self.places_B = self.places_B[kept_B]
        self.live_B = self.live_B[kept_B]
