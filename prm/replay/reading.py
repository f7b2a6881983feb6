"""How a reward model reads rows, as two hashes that a buffer keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepmark.engines.loading import load_tokenizer
from stepmark.prm.checkpoint import read_card
from stepmark.prm.places import folder_of
from stepmark.store import rows_hash, text_hash

from .buffer import Reader

__all__ = ["reader_of"]

CHANGING = ("padding", "truncation")
"""What a tokenizer's file says of its last use, and not of its rules."""


def reader_of(model: Path | str) -> Reader:
    """The hashes of encoding and tokenizer of a reward model of ``stepmark prm train``.

    Raises:
        SetupError: there is no such reward model.
        RunError: its card cannot be read.
    """
    folder = folder_of(model)
    card = read_card(folder)
    encoding = rows_hash([card.encoding.model_dump(mode="json")])
    return Reader(encoding, _tokenizer_hash(load_tokenizer(str(folder))))


def _tokenizer_hash(tokenizer: Any) -> str:
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if inner is None:
        return rows_hash([dict(sorted(tokenizer.get_vocab().items()))])
    rules = {k: v for k, v in json.loads(inner.to_str()).items() if k not in CHANGING}
    return text_hash(json.dumps(rules, sort_keys=True))
