"""A batch of completions of any model: prompts left-padded, the model's own cache.

Shapes: ``P`` prompts, ``B`` rows still in the batch, ``T`` padded prompt tokens, ``M`` those and
the tokens that follow, ``V`` vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .growing import can_grow, grown

__all__ = ["PaddedPrompts"]


class PaddedPrompts:
    """A batch between two decoding steps; both methods give the logits of each row's next token.

    Prompts are left-padded under an explicit mask with explicit positions. Each is prefilled once
    and its cache repeated for all its rows, where the model's cache is one of plain keys and
    values; a model with another kind of state runs every row from its first token.

    Args:
        model: a causal model of transformers.
        prompts: ids of each prompt.
        source: which prompt each row goes on from.
        room: tokens of a row at most.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], source: Sequence[int], room: int
    ) -> None:
        self.model, self.prompts, self.room = model, prompts, room
        self.device = next(model.parameters()).device
        self.source_B = torch.tensor(source, device=self.device)
        self.parameters = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the cache; older releases know the first name only.
        self.cache_name = "cache" if "cache" in self.parameters else "past_key_values"
        self.cache: Any = None
        self.length = 0
        self.tokens_read = 0
        """Tokens of prompts that went through the model, padding left out."""

    def read(self) -> Tensor:
        """Read all prompts."""
        source_B = self.source_B
        width = max(len(ids) for ids in self.prompts)
        padded = [[0] * (width - len(ids)) + list(ids) for ids in self.prompts]
        ids_PT = torch.tensor(padded, device=self.device)
        lengths_P = torch.tensor([len(ids) for ids in self.prompts], device=self.device)
        places_T = torch.arange(width, device=self.device)
        mask_PT = (places_T[None] >= width - lengths_P[:, None]).long()
        positions_PT = (places_T[None] - (width - lengths_P[:, None])).clamp(min=0)
        new_BM = mask_PT.new_ones(len(source_B), self.room)
        self.mask_BM = torch.cat([mask_PT[source_B], new_BM], dim=1)
        self.width = width
        self.positions_B = lengths_P[source_B]
        logits_PV = self._run(ids_PT, mask_PT, positions_PT)
        self.tokens_read = int(lengths_P.sum())
        if not can_grow(self.cache):
            if len(self.prompts) == len(source_B):
                return logits_PV
            self.cache = None
            self.tokens_read += int(lengths_P[source_B].sum())
            return self._run(ids_PT[source_B], mask_PT[source_B], positions_PT[source_B])
        self.cache = grown(self.cache, source_B, width + self.room)
        return logits_PV[source_B]

    def go_on(self, tokens_B: Tensor) -> Tensor:
        """Take one more token for every row."""
        self.length += 1
        mask_BM = self.mask_BM[:, : self.width + self.length]
        positions_B1 = (self.positions_B + self.length - 1)[:, None]
        return self._run(tokens_B[:, None], mask_BM, positions_B1)

    def keep(self, rows_B: Tensor) -> bool:
        """Go on with these rows only, in their order; False where the cache has no such rows."""
        if not can_grow(self.cache):
            return False
        self.cache.batch_select_indices(rows_B)
        self.positions_B = self.positions_B[rows_B]
        self.mask_BM = self.mask_BM[rows_B]
        return True

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
