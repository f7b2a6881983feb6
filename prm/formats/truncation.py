"""How many tokens labelled solutions take, and which labels a limit on the tokens would cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from stepmark.prm.encoding import Encoded
from stepmark.types import LabelledSteps, Problem

from .balance import Spread, has_words, label_word

__all__ = ["LIMITS", "Loss", "TokenForecast"]

LIMITS = (256, 512, 1024, 2048, 4096, 8192)
"""Longest rows, in tokens, of which the losses are counted."""


class Encoder(Protocol):
    """`stepmark.prm.StepEncoder`, or one that encodes as it does."""

    def encode(self, problem: Problem, steps: tuple[str, ...]) -> Encoded:
        """The solution as tokens, with the place of each step's score."""
        ...


class Loss(NamedTuple):
    """What a limit on the tokens of a row costs."""

    max_tokens: int
    rows_cut: int
    """Rows of which at least one step does not fit."""
    rows_without_label: int
    """Rows that had a label and have none left: nothing can be learnt from them."""
    labels: int
    """Labels lost."""
    wrong: int
    """Of these, labels of 0: errors stand late, so they are lost first."""


class TokenForecast:
    """Counts the tokens of rows as they pass.

    Args:
        encoder: must not cut: give it a ``max_tokens`` beyond every row.
        limits: longest rows of which the losses are counted, in tokens.
    """

    def __init__(self, encoder: Encoder, limits: Iterable[int] = LIMITS) -> None:
        self.encoder = encoder
        self.limits = sorted(set(limits))
        self.labels = 0
        self.prompts: list[int] = []
        """Tokens of the prompt of every row."""
        self.rows: list[int] = []
        """Tokens of every row, prompt included."""
        self.steps: list[int] = []
        """Tokens of every step, separator included."""
        self._lost: dict[int, Counter[str]] = {limit: Counter() for limit in self.limits}

    def counted(self, rows: Iterable[LabelledSteps]) -> Iterator[LabelledSteps]:
        """The same rows, counted on their way."""
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: LabelledSteps) -> None:
        """Count one row; one with a blank step has no tokens, as training leaves it out."""
        if not has_words(row):
            return
        encoded = self.encoder.encode(row.problem, row.steps)
        prompt = len(encoded.prompt_ids)
        words = [label_word(label) for label in row.labels]
        self.labels += sum(word != "masked" for word in words)
        self.prompts.append(prompt)
        self.rows.append(encoded.length)
        starts = (-1, *encoded.ends)
        self.steps += [end - start for start, end in zip(starts, encoded.ends, strict=False)]
        for limit in self.limits:
            if encoded.length > limit:
                kept = sum(prompt + end + 1 <= limit for end in encoded.ends)
                self._cut(limit, words, kept)

    def _cut(self, limit: int, words: list[str], kept: int) -> None:
        lost = Counter(words[kept:])
        labels = lost.total() - lost["masked"]
        had = any(word != "masked" for word in words)
        has = any(word != "masked" for word in words[:kept])
        counts = {"rows": 1, "empty": int(had and not has), "labels": labels}
        self._lost[limit].update(counts | {"wrong": lost["wrong"]})

    @property
    def losses(self) -> list[Loss]:
        """One per limit, up to the first that costs nothing."""
        found: list[Loss] = []
        for limit in self.limits:
            lost = self._lost[limit]
            found.append(Loss(limit, lost["rows"], lost["empty"], lost["labels"], lost["wrong"]))
            if not lost["rows"]:
                break
        return found

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values; long lists as their spread."""
        return {
            "tokens_per_row": Spread.of(self.rows)._asdict(),
            "tokens_per_prompt": Spread.of(self.prompts)._asdict(),
            "tokens_per_step": Spread.of(self.steps)._asdict(),
            "labels": self.labels,
            "truncation": [loss._asdict() for loss in self.losses],
        }
