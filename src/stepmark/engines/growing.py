"""A key-value cache that is repeated for the rows of a prompt and has room for what follows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

__all__ = ["can_grow", "grown"]


def can_grow(cache: Any) -> bool:
    """Whether a cache holds plain keys and values only, so that its rows can be taken and repeated.

    Recurrent states and home-made caches of models are left alone.
    """
    plain = (DynamicLayer, DynamicSlidingWindowLayer, RoomyLayer)
    return type(cache) is DynamicCache and all(type(layer) in plain for layer in cache.layers)


class RoomyLayer(DynamicLayer):
    """Keys and values in buffers with room: a new token is written in place.

    The layer of transformers copies all it holds for each token.
    """

    def __init__(self, layer: DynamicLayer, rows_B: Tensor, room: int) -> None:
        super().__init__()
        assert layer.keys is not None
        assert layer.values is not None
        self.dtype, self.device = layer.keys.dtype, layer.keys.device
        self.is_initialized = True
        self.length = layer.keys.shape[-2]
        self.key_room = _roomy(layer.keys, rows_B, room)
        self.value_room = _roomy(layer.values, rows_B, room)
        self._show()

    def _show(self) -> None:
        self.keys = self.key_room[:, :, : self.length]
        self.values = self.value_room[:, :, : self.length]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new states behind the old ones; views of all of them."""
        end = self.length + key_states.shape[-2]
        self.key_room[:, :, self.length : end] = key_states
        self.value_room[:, :, self.length : end] = value_states
        self.length = end
        self._show()
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only."""
        self.key_room = self.key_room[indices]
        self.value_room = self.value_room[indices]
        self._show()


def _roomy(states: Tensor, rows_B: Tensor, room: int) -> Tensor:
    buffer = states.new_zeros(len(rows_B), states.shape[1], room, states.shape[3])
    buffer[:, :, : states.shape[2]] = torch.index_select(states, 0, rows_B)
    return buffer


def grown(cache: DynamicCache, rows_B: Tensor, room: int) -> DynamicCache:
    """The cache with its rows repeated as the index says, and room for that many tokens in all."""
    layers: list[Any] = cache.layers
    for place, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.keys is not None and layer.keys.numel():
            layers[place] = RoomyLayer(layer, rows_B, room)
        else:
            layer.batch_select_indices(rows_B)
    return cache
