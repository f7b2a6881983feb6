"""Keys and values of a batch of completions: those of a prompt once, for all its rows.

A decoding step reads all keys and values, which is most of what attention takes. Here the rows
of one prompt ask its keys together; only what follows the prompt is each row's own. Prompts of any
lengths lie end to end in one forward pass without padding; a prompt that begins another one is read
with it.

Shapes: ``P`` prompts, ``S`` tokens of the longest, ``B`` rows, ``G`` rows of the largest group,
``H`` heads of keys, ``N`` heads of queries for each, ``D`` width of a head, ``L`` own tokens so
far.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from stepmark.training.attention import Attend, Blocks, run_pattern, takes_layouts
from stepmark.training.head import split_model
from stepmark.training.layout import lay_end_to_end
from stepmark.training.sample import TrainingSample

__all__ = ["SharedPrompts", "can_share", "longest_of"]

log = logging.getLogger(__name__)

_probed: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()

PROBE = ((1, 2, 3, 4, 5), (6, 7, 8))
NEXT = (4, 9, 2)
"""Prompts of a probe, and the tokens that follow: two rows of the first prompt, one of the second.
"""

ALLOWED = 1e-3
"""How far logits of a probe may be from the model's own, over the largest: rounding of deep models
stays below it, attention that is not the model's does not.
"""


def can_share(model: Any) -> bool:
    """Whether a model can be decoded this way here: float32, and attention that takes patterns.

    Scores of queries and keys are made in the type of the states; in bfloat16 that is too coarse.
    A probe, once per model, reads two prompts and goes on by a token; where that does not give the
    model's own logits, one log line says so.
    """
    weight = next(model.parameters())
    if weight.dtype != torch.float32 or torch.is_autocast_enabled(weight.device.type):
        return False
    split = split_model(model)
    if split is None or not takes_layouts(split.body):
        return False
    if model not in _probed:
        why = _why_not(model)
        if why is not None:
            log.warning(
                "%s: prompts are not held once (%s); each completion keeps keys and values of "
                "its own, which costs more time and memory.",
                type(model).__name__,
                why,
            )
        _probed[model] = why is None
    return _probed[model]


@torch.no_grad()
def _why_not(model: Any) -> str | None:
    """Why a probe of a model cannot be decoded this way; None when it can."""
    training = model.training
    model.eval()
    try:
        gap = _gap(model)
    except (TypeError, RuntimeError, AttributeError, IndexError, ValueError) as error:
        log.debug("probe of %s: %s", type(model).__name__, error)
        return "a probe failed"
    finally:
        model.train(training)
    return None if gap <= ALLOWED else f"a probe gave logits {gap:.1g} away"


def _gap(model: Any) -> float:
    """How far the logits of a read and a step are from the model's own, over the largest of them.

    Numbers that do not compare (NaN) are infinitely far.
    """
    words = len(model.get_input_embeddings().weight)
    prompts = [[token % words for token in ids] for ids in PROBE]
    source, follow = (0, 0, 1), [token % words for token in NEXT]
    batch = SharedPrompts(model, prompts, source, 2)
    device = batch.device
    given = torch.cat([batch.read(), batch.go_on(torch.tensor(follow, device=device))])
    rows = [prompts[prompt] for prompt in source]
    rows += [[*row, token] for row, token in zip(rows, follow, strict=True)]
    alone = [model(input_ids=torch.tensor([row], device=device)).logits[0, -1] for row in rows]
    wanted = torch.stack(alone)
    gap = float((given - wanted).abs().max() / wanted.abs().max())
    return math.inf if math.isnan(gap) else gap


def longest_of(prompts: Sequence[Sequence[int]]) -> list[int]:
    """For each prompt the place of the longest one that begins with it; often its own.

    Of equal prompts it is the place of one.

    >>> longest_of([(1, 2), (3,), (1, 2, 3), (1, 4)])
    [2, 1, 2, 3]
    """
    # In this order, those that a prompt begins follow right behind it.
    order = sorted(range(len(prompts)), key=lambda place: tuple(prompts[place]))
    found = list(range(len(prompts)))
    for place, after in reversed(list(pairwise(order))):
        short = prompts[place]
        if tuple(prompts[after][: len(short)]) == tuple(short):
            found[place] = found[after]
    return found


class SharedPrompts:
    """A batch between two decoding steps; both methods give the logits of each row's next token.

    Args:
        model: one that `can_share`.
        prompts: ids of each prompt.
        source: which prompt each row goes on from; rows of one prompt stand together.
        room: tokens of a row at most.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], source: Sequence[int], room: int
    ) -> None:
        split = split_model(model)
        assert split is not None
        self.body, self.head, self.room = split.body, split.head, room
        self.device = next(model.parameters()).device
        self.prompts = prompts
        self.tokens_read = 0
        """Tokens of prompts that went through the model."""
        self.length = 0
        self.layers: list[_Layer] = []
        self.at = 0
        lengths = torch.tensor([len(ids) for ids in prompts], device=self.device)
        self.positions_B = lengths[torch.tensor(source, device=self.device)]
        self._group(list(source))
        longest = int(lengths.max())
        seen_PS = torch.arange(longest, device=self.device)[None] < lengths[:, None]
        self.seen_P11S = None if bool(seen_PS.all()) else seen_PS[:, None, None]

    def _group(self, source: list[int]) -> None:
        """Where each row stands among those of its prompt."""
        self.source = source
        counts = [0] * len(self.prompts)
        slots: list[tuple[int, int]] = []
        for prompt in source:
            slots.append((prompt, counts[prompt]))
            counts[prompt] += 1
        self.most = max(counts)
        self.slots_B: Tensor | None = None
        if min(counts) < self.most:
            places = [prompt * self.most + place for prompt, place in slots]
            self.slots_B = torch.tensor(places, device=self.device)

    def read(self) -> Tensor:
        """Read all prompts."""
        whole = longest_of(self.prompts)
        read = sorted(set(whole))
        place = {prompt: at for at, prompt in enumerate(read)}
        samples = [TrainingSample(tuple(self.prompts[prompt]), (0,)) for prompt in read]
        layout = lay_end_to_end(samples, self.device, 1, share=False)
        self.tokens_read = len(layout.ids_T)
        ends_P = layout.places_N[[place[prompt] for prompt in whole]]
        rest = [len(self.prompts[w]) - len(ids) for w, ids in zip(whole, self.prompts, strict=True)]
        ends_P = ends_P - torch.tensor(rest, device=self.device)
        kept_K = None if layout.kept_K is None else ends_P.unique()
        row = layout.ids_T[None], layout.positions_T[None]
        reading = _Reading(self, Blocks(layout), ends_P)
        states_1TD = run_pattern(self.body, *row, reading, kept_K)
        logits_PV = self.head(states_1TD[0, ends_P])
        return logits_PV[torch.tensor(self.source, device=self.device)]

    def go_on(self, tokens_B: Tensor) -> Tensor:
        """Take one more token for every row."""
        self.at = 0
        positions_B1 = (self.positions_B + self.length)[:, None]
        states_B1D = run_pattern(self.body, tokens_B[:, None], positions_B1, self)
        self.length += 1
        return self.head(states_B1D[:, 0])

    def keep(self, rows_B: Tensor) -> bool:
        """Go on with these rows only, in their order; always True."""
        source = [self.source[row] for row in rows_B.tolist()]
        left = sorted(set(source))
        order = {prompt: place for place, prompt in enumerate(left)}
        prompts_P = torch.tensor(left, device=self.device)
        for layer in self.layers:
            layer.keep(prompts_P, rows_B, self.length)
        if self.seen_P11S is not None:
            self.seen_P11S = self.seen_P11S[prompts_P]
        self.prompts = [self.prompts[prompt] for prompt in left]
        self.positions_B = self.positions_B[rows_B]
        self._group([order[prompt] for prompt in source])
        return True

    def attend(
        self, own: Attend, module: nn.Module, states: tuple[Tensor, Tensor, Tensor], **wanted: Any
    ) -> Tensor:
        """Attention of one token of every row, to its prompt and to what the row has drawn."""
        query_BQ1D, *new = states
        layer = self.layers[self.at]
        self.at += 1
        layer.append(*new, at=self.length)
        end, (heads, _, width) = self.length + 1, layer.own[0].shape[1:]
        scale = wanted.get("scaling")
        query_BQ1D = query_BQ1D * (1 / math.sqrt(width) if scale is None else scale)
        query_BHND = query_BQ1D.reshape(len(query_BQ1D), heads, -1, width)
        keys_PHSD, values_PHSD = layer.shared
        scores_PHGNS = self._together(query_BHND) @ keys_PHSD.mT
        if self.seen_P11S is not None:
            scores_PHGNS.masked_fill_(~self.seen_P11S, -torch.inf)
        keys_BHLD, values_BHLD = (some[:, :, :end] for some in layer.own)
        scores = self._apart(scores_PHGNS), query_BHND @ keys_BHLD.mT
        shares = torch.cat(scores, dim=-1).softmax(-1)
        of_prompt, of_own = shares.split([keys_PHSD.shape[2], end], dim=-1)
        out_BHND = self._apart(self._together(of_prompt) @ values_PHSD) + of_own @ values_BHLD
        # Values may be narrower than keys.
        return out_BHND.reshape(len(out_BHND), 1, -1, out_BHND.shape[-1])

    def _together(self, some_BHNX: Tensor) -> Tensor:
        """Rows by their prompts: ``P H (G N) X``; where groups differ, zeros fill them up."""
        count = len(self.prompts) * self.most
        if self.slots_B is not None:
            padded = some_BHNX.new_zeros(count, *some_BHNX.shape[1:])
            some_BHNX = padded.index_copy_(0, self.slots_B, some_BHNX)
        return some_BHNX.unflatten(0, (-1, self.most)).transpose(1, 2).flatten(2, 3)

    def _apart(self, some_PHGNX: Tensor) -> Tensor:
        """The opposite."""
        some_PHGNX = some_PHGNX.unflatten(2, (self.most, -1))
        some_BHNX = some_PHGNX.transpose(1, 2).flatten(0, 1)
        return some_BHNX if self.slots_B is None else some_BHNX[self.slots_B]


class _Reading:
    """The pattern that reads the prompts, each in itself, and keeps their keys and values."""

    def __init__(self, batch: SharedPrompts, blocks: Blocks, ends_P: Tensor) -> None:
        self.batch, self.blocks = batch, blocks
        lengths_P = torch.tensor([len(ids) for ids in batch.prompts], device=batch.device)
        starts_P = ends_P - lengths_P + 1
        places_S = torch.arange(int(lengths_P.max()), device=batch.device)
        self.places_PS = torch.minimum(starts_P[:, None] + places_S, ends_P[:, None])

    def attend(
        self, own: Attend, module: nn.Module, states: tuple[Tensor, Tensor, Tensor], **wanted: Any
    ) -> Tensor:
        """Attention of a layer, block by block."""
        shared = [some[0, :, self.places_PS].transpose(0, 1).contiguous() for some in states[1:]]
        self.batch.layers.append(_Layer(shared, len(self.batch.source), self.batch.room))
        return self.blocks.attend(own, module, states, **wanted)


class _Layer:
    """Keys and values of a layer: of the prompts, ``P H S D``; of the rows, with room for more."""

    def __init__(self, shared: list[Tensor], rows: int, room: int) -> None:
        self.shared = shared
        self.own = [some.new_empty(rows, some.shape[1], room, some.shape[3]) for some in shared]

    def append(self, *new: Tensor, at: int) -> None:
        """Take the keys and values of one more token of every row."""
        for some, one_BH1D in zip(self.own, new, strict=True):
            some[:, :, at] = one_BH1D[:, :, 0]

    def keep(self, prompts_P: Tensor, rows_B: Tensor, length: int) -> None:
        """Go on with these prompts and these rows."""
        if len(prompts_P) < len(self.shared[0]):
            self.shared = [some[prompts_P] for some in self.shared]
        for place, some in enumerate(self.own):
            kept = some.new_empty(len(rows_B), *some.shape[1:])
            kept[:, :, :length] = some[rows_B, :, :length]
            self.own[place] = kept
