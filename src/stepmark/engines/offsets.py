"""Which characters each sampled token stands for, found from the ids and never by tokenising again.

A text that is tokenised again may give other ids than those that were sampled; offsets from there
would put steps on the wrong tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from .stopping import texts_of

__all__ = ["token_offsets"]

PARTIAL = "\N{REPLACEMENT CHARACTER}"
"""What decoders write for bytes that are no whole character yet."""


def token_offsets(
    tokenizer: Any, ids: Sequence[int], text: str | None = None
) -> tuple[tuple[int, int], ...]:
    """The character span of every token in the text of the completion.

    Spans follow one another and cover the text. Tokens without characters of their own have empty
    spans: special tokens, all but the last of the tokens that share a character, and what was
    sampled of a stop string.

    Args:
        tokenizer: the policy's.
        ids: the sampled tokens.
        text: the completion as the engine gave it, cut before a stop string; the whole one when
            absent.
    """
    whole = texts_of(tokenizer, [ids])[0]
    starts = _starts_of_pieces(tokenizer, ids, whole) or _starts_of_prefixes(tokenizer, ids, whole)
    limit = len(whole) if text is None else min(len(text), len(whole))
    return tuple(pairwise(min(start, limit) for start in [*starts, len(whole)]))


def _starts_of_pieces(tokenizer: Any, ids: Sequence[int], whole: str) -> list[int] | None:
    """First characters where tokens decode one by one to the text; None where they do not."""
    distinct = list(dict.fromkeys(ids))
    pieces = dict(zip(distinct, texts_of(tokenizer, [[id] for id in distinct]), strict=True))
    if "".join(pieces[id] for id in ids) != whole:
        return None
    starts, at = list[int](), 0
    for id in ids:
        starts.append(at)
        at += len(pieces[id])
    return starts


def _starts_of_prefixes(tokenizer: Any, ids: Sequence[int], whole: str) -> list[int]:
    """First characters where tokens share characters, or change beside their neighbours.

    The text in front of a token is that of the tokens before it. A character that is not whole yet
    belongs to the token that completes it.
    """
    starts, highest = list[int](), 0
    for prefix in _prefix_texts(tokenizer, ids):
        known = len(prefix.rstrip(PARTIAL)) if not whole.startswith(prefix) else len(prefix)
        highest = max(highest, min(known, len(whole)))
        starts.append(highest)
    return starts


def _prefix_texts(tokenizer: Any, ids: Sequence[int], block: int = 64) -> Iterator[str]:
    """The text in front of each token."""
    for first in range(0, len(ids), block):
        rows = [ids[:count] for count in range(first, min(first + block, len(ids)))]
        yield from texts_of(tokenizer, rows)
