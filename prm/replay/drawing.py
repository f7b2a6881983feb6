"""A draw as the settings of a refresh have it; no torch."""

from __future__ import annotations

from .buffer import ReplayBuffer
from .config import RefreshConfig
from .draw import Balance, Mixture, draw

__all__ = ["drawn"]


def drawn(buffer: ReplayBuffer, round: int, settings: RefreshConfig) -> Mixture:
    """What a refresh with these settings would learn from.

    Raises:
        RunError: the round is missing or half-written.
    """
    table = settings.replay
    return draw(
        buffer,
        round,
        history_share=table.share,
        seed=table.seed,
        reading=table.reading,
        weight=table.weight,
        balance=None if table.error_share is None else Balance(*table.error_share),
    )
