"""Where a completion ends: end tokens of a model, and stop strings in its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["cut", "end_ids", "stop_test", "texts_of"]


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """All end tokens: those of the generation config, of the config and of the tokenizer."""
    named = (
        getattr(getattr(model, "generation_config", None), "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    )
    found: set[int] = set()
    for value in named:
        found.update(
            value if isinstance(value, list | tuple) else () if value is None else (value,)
        )
    return tuple(sorted(found))


def texts_of(tokenizer: Any, ids: Sequence[Sequence[int]]) -> list[str]:
    """The texts of completions, special tokens left out and nothing else cleaned up."""
    rows = [list(row) for row in ids]
    return tokenizer.batch_decode(
        rows, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string in it.

    >>> cut("12 Question: what", ("Question:", "what"))
    '12 '
    """
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def stop_test(
    tokenizer: Any, stops: Sequence[str]
) -> Callable[[list[list[int]]], list[bool]] | None:
    """Which of several completions so far hold a stop string; None when there are none to look for.

    Only the last tokens are decoded at each step: enough for the longest stop string, were each of
    its bytes a token; a hit is confirmed on the whole completion, whose text decides.
    """
    if not stops:
        return None
    tail = max(len(stop.encode()) for stop in stops) + 8

    def holds(text: str) -> bool:
        return any(stop in text for stop in stops)

    def test(ids: list[list[int]]) -> list[bool]:
        hits = [holds(text) for text in texts_of(tokenizer, [row[-tail:] for row in ids])]
        return [
            hit and (len(row) <= tail or holds(texts_of(tokenizer, [row])[0]))
            for hit, row in zip(hits, ids, strict=True)
        ]

    return test
