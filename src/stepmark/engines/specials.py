"""Special tokens that a problem spells out are text: only templates may write real ones.

A problem that quotes ``<|im_end|>`` would otherwise end its own turn, and one that quotes a role
could give orders in the name of the system. Tokens that a tokenizer does not call special, such as
``<think>`` in some, are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = ["hidden", "ids_of", "revealed"]

PRIVATE_USE = range(0xE000, 0xF8FF)
"""Characters without a meaning, one of which stands for a special token while a prompt is made."""


def hidden(text: str, tokenizer: Any, around: str = "") -> tuple[str, Mapping[str, str]]:
    """A text whose special tokens are each hidden behind a character, and what each stands for.

    Args:
        text: the problem's.
        tokenizer: a tokenizer of transformers, or one without special tokens.
        around: the words that will stand around it: none of their characters is used.
    """
    pattern = _special(tokenizer)
    spelled = dict.fromkeys(pattern.findall(text)) if pattern else {}
    if not pattern or not spelled:
        return text, {}
    free = (char for char in map(chr, PRIVATE_USE) if char not in text and char not in around)
    marks = dict(zip(spelled, free, strict=False))
    return pattern.sub(lambda found: marks[found[0]], text), {m: word for word, m in marks.items()}


def revealed(text: str, words: Mapping[str, str]) -> str:
    """The text with every hidden special token spelled out again."""
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


def ids_of(text: str, words: Mapping[str, str], tokenizer: Any) -> list[int]:
    """The ids of a rendered text: what was hidden is tokenised as text, the rest as it stands.

    Where something was hidden, the text up to the template's own special tokens around it is
    tokenised by itself; those are borders for the tokenizer in any case.
    """
    if not words:
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    pattern = _special(tokenizer)
    assert pattern is not None
    # Odd parts are the template's own special tokens.
    parts = re.split(f"({pattern.pattern})", text)
    ids: list[int] = []
    plain = ""
    for part in parts:
        if not any(mark in part for mark in words):
            plain += part
            continue
        ids += tokenizer(plain, add_special_tokens=False)["input_ids"] if plain else []
        plain = ""
        spelled = revealed(part, words)
        ids += tokenizer(spelled, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids + (tokenizer(plain, add_special_tokens=False)["input_ids"] if plain else [])


def _special(tokenizer: Any) -> re.Pattern[str] | None:
    known = getattr(tokenizer, "added_tokens_decoder", None)
    return _pattern(tokenizer, len(known)) if known else None


@lru_cache(maxsize=8)
def _pattern(tokenizer: Any, count: int) -> re.Pattern[str] | None:
    """One pattern for all special tokens, longer ones first; ``count`` sees tokens added later."""
    words = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    words.discard("")
    if not words:
        return None
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
