"""Texts that are tokenised as a whole, as some publishers do, with places that are computed.

A place is a character that we put there ourselves; the tokenizer's offsets say which token holds
it. Nothing is searched for in tokens or in text, so a solution may hold the tag as a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stepmark.errors import ConfigError
from stepmark.prm.encoding import Encoded, readable

__all__ = ["Tokens", "encoded", "tokens_of"]


class Tokens(NamedTuple):
    """A text as tokens, and which characters each of them holds."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def holding(self, place: int) -> int:
        """The last token that holds a character; -1 where none does."""
        downwards = range(len(self.spans) - 1, -1, -1)
        return next((at for at in downwards if self.spans[at][0] <= place < self.spans[at][1]), -1)


def tokens_of(tokenizer: Any, text: str, *, special: bool) -> Tokens:
    """The tokens of a text.

    Args:
        tokenizer: one that gives offsets.
        text: the whole of it.
        special: whether texts of special tokens mean those; else they are words, and the tokenizer
            adds what it adds to plain text.

    Raises:
        ConfigError: the tokenizer gives no offsets.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"The tokenizer {type(tokenizer).__name__} gives no offsets, by which this adapter "
            "finds the ends of steps. Save a fast one (tokenizer.json) beside the weights."
        )
    found = tokenizer(
        readable(text),  # as long as before: places stay where they are
        add_special_tokens=not special,
        split_special_tokens=not special,
        return_offsets_mapping=True,
    )
    return Tokens(
        tuple(found["input_ids"]), tuple((int(a), int(b)) for a, b in found["offset_mapping"])
    )


def encoded(tokens: Tokens, prompt_end: int, places: Sequence[int], max_tokens: int) -> Encoded:
    """The row with its scores at some tokens, cut behind the last one that it may keep.

    Args:
        tokens: of the whole row.
        prompt_end: the character behind the problem; tokens that begin before it are the prompt.
        places: the token at which each step is scored.
        max_tokens: longest row.
    """
    begins = (at for at, (start, end) in enumerate(tokens.spans) if end > start >= prompt_end)
    border = max(1, next(begins, len(tokens.ids)))
    kept = [place - border for place in places if place < max_tokens]
    if not kept:
        return Encoded(tokens.ids[:border], (), (), len(places))
    ids = tokens.ids[border : border + kept[-1] + 1]
    return Encoded(tokens.ids[:border], ids, tuple(kept), len(places) - len(kept))
