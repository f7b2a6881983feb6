"""Progress bars of transformers, off while files on this machine are read or written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_progress_bars"]


@contextmanager
def no_progress_bars(wanted: bool = True) -> Iterator[None]:
    """No bar within the block: a folder takes a moment, only a download deserves one.

    Args:
        wanted: False leaves everything as it is.
    """
    from transformers.utils import logging as bars

    off = wanted and bars.is_progress_bar_enabled()
    if off:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if off:
            bars.enable_progress_bar()
