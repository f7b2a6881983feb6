"""One batch of completions: prefill, then one token for every row until all have ended.

Shapes: ``P`` prompts, ``B`` rows still in the batch, ``R`` rows of the whole batch, ``T`` padded
prompt tokens, ``V`` vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stepmark.types import Finish, Prompt, Sampling

from .drawing import draw, uniforms
from .growing import can_grow, grown

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

    Prompts are left-padded under an explicit mask with explicit positions. Each prompt is prefilled
    once and its cache repeated for all its rows, where the model's cache is one of plain keys and
    values; a model with another kind of state runs every row from its first token. Rows that ended
    leave the batch when they are a quarter of it.

    Args:
        model: a causal model of transformers, in eval mode whenever `advance` runs.
        rows: rows of one prompt stand together.
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
        self.model = model
        self.rows = rows
        self.sampling = sampling
        self.ended_by_text = ended_by_text
        self.device = next(model.parameters()).device
        self.eos_ids = torch.tensor(list(eos_ids), device=self.device, dtype=torch.long)
        self.parameters = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the cache; older releases know the first name only.
        self.cache_name = "cache" if "cache" in self.parameters else "past_key_values"
        count, width = len(rows), sampling.max_tokens
        self.uniforms_RM = uniforms([row.seed for row in rows], width).to(self.device)
        self.ids_RM = torch.zeros(count, width, dtype=torch.long, device=self.device)
        self.logps_RM = torch.zeros(count, width, device=self.device)
        self.places_B = torch.arange(count, device=self.device)
        """Row of the whole batch that each row still computed stands for."""
        self.live_B = torch.ones(count, dtype=torch.bool, device=self.device)
        self.step = 0
        self.cache: Any = None
        self.tokens_B: Tensor | None = None

    @property
    def done(self) -> bool:
        """Every completion has ended."""
        return not bool(self.live_B.any())

    @torch.no_grad()
    def advance(self) -> list[Ended]:
        """Draw tokens until at least one more completion has ended; those that have."""
        while True:
            logits_BV = self._prefill() if self.tokens_B is None else self._next()
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

    def _prefill(self) -> Tensor:
        groups = {row.group: row.prompt for row in self.rows}
        prompts, order = list(groups.values()), {group: i for i, group in enumerate(groups)}
        source_B = torch.tensor([order[row.group] for row in self.rows], device=self.device)
        width = max(len(prompt.ids) for prompt in prompts)
        padded = [[0] * (width - len(prompt.ids)) + list(prompt.ids) for prompt in prompts]
        ids_PT = torch.tensor(padded, device=self.device)
        lengths_P = torch.tensor([len(prompt.ids) for prompt in prompts], device=self.device)
        places_T = torch.arange(width, device=self.device)
        mask_PT = (places_T[None] >= width - lengths_P[:, None]).long()
        positions_PT = (places_T[None] - (width - lengths_P[:, None])).clamp(min=0)
        room = self.sampling.max_tokens
        self.mask_BM = torch.cat([mask_PT[source_B], mask_PT.new_ones(len(source_B), room)], dim=1)
        self.width = width
        self.positions_B = lengths_P[source_B]
        logits_PV = self._run(ids_PT, mask_PT, positions_PT)
        if not can_grow(self.cache):
            if len(prompts) == len(self.rows):
                return logits_PV
            self.cache = None
            return self._run(ids_PT[source_B], mask_PT[source_B], positions_PT[source_B])
        self.cache = grown(self.cache, source_B, width + room)
        return logits_PV[source_B]

    def _next(self) -> Tensor:
        assert self.tokens_B is not None
        mask_BM = self.mask_BM[:, : self.width + self.step]
        positions_B1 = (self.positions_B + self.step - 1)[:, None]
        return self._run(self.tokens_B[:, None], mask_BM, positions_B1)

    def _run(self, ids_BT: Tensor, mask_BM: Tensor, positions_BT: Tensor) -> Tensor:
        """Logits of the last place of every row; the cache is kept."""
        given: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": mask_BM, "use_cache": True}
        if "position_ids" in self.parameters:
            given["position_ids"] = positions_BT
        if "logits_to_keep" in self.parameters:
            given["logits_to_keep"] = 1
        if self.cache is not None:
            given[self.cache_name] = self.cache
        out = self.model(**given)
        self.cache = getattr(out, self.cache_name)
        return out.logits[:, -1]

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
        if live == 0 or live > 0.75 * len(self.live_B) or not can_grow(self.cache):
            return
        kept_B = self.live_B.nonzero().squeeze(-1)
        assert self.tokens_B is not None
        self.cache.batch_select_indices(kept_B)
        self.tokens_B = self.tokens_B[kept_B]
        self.places_B = self.places_B[kept_B]
        self.positions_B = self.positions_B[kept_B]
        self.mask_BM = self.mask_BM[kept_B]
        self.live_B = self.live_B[kept_B]
