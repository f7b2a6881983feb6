"""Scores that were worked out before: by scorer and text, in memory and, where asked, in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from stepmark.store.files import append_rows, read_rows
from stepmark.types import StepItem

__all__ = ["ScoreCache", "Scores", "item_digest"]

Scores = tuple[float | None, ...]

ENTRIES = 200_000
"""Solutions held in memory; the oldest leave first. Some 200 bytes each."""


def item_digest(item: StepItem) -> str:
    """32 hexadecimal digits of all that a model reads: the problem's text and the steps."""
    content = json.dumps([item.problem.text, *item.steps])
    return blake2b(content.encode(), digest_size=16).hexdigest()


class ScoreCache:
    """What one scorer said, by the digest of the text.

    Args:
        key: of the scorer; it changes whenever a score can change, and with it the file.
        folder: where a file keeps the scores between processes; None keeps them in memory.
        entries: solutions held in memory.
    """

    def __init__(self, key: str, folder: str | Path | None = None, entries: int = ENTRIES) -> None:
        self.entries = entries
        self.path = None if folder is None else Path(folder) / f"{quote(key, safe='@-._')}.jsonl"
        self.known: dict[str, Scores] = {}
        if self.path is not None:
            rows = read_rows(self.path)
            self.known = {row["text"]: tuple(row["scores"]) for row in rows[-entries:]}

    def get(self, digest: str) -> Scores | None:
        """The scores of a text; None where it is new."""
        return self.known.get(digest)

    def add(self, found: Mapping[str, Scores]) -> None:
        """Remember scores by digest; in the file they are on the disk when this returns."""
        self.known.update(found)
        for digest in list(self.known)[: max(0, len(self.known) - self.entries)]:
            del self.known[digest]
        if self.path is not None and found:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_rows(self.path, ({"text": text, "scores": row} for text, row in found.items()))
