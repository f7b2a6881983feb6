"""What all scorers that read with a model share: encode, look up, one forward pass each, check."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

from pydantic import ValidationError

from stepmark.errors import ConfigError, DataError, did_you_mean
from stepmark.types import Problem, StepItem, StepScores

from .cache import ScoreCache, Scores, item_digest
from .encoding import Encoded, EncodingSettings
from .steps import Span, split_steps

__all__ = ["Dtype", "Encoder", "ModelScorer", "encoding_settings", "known_dtype"]

Dtype = Literal["float32", "bfloat16", "float16"]

TOKENS_PER_BATCH = {"cpu": 2048}
"""Tokens of one forward pass unless told otherwise, by device: on a CPU, more of them leave its
caches and gain nothing."""
ELSEWHERE = 16384


class Encoder(Protocol):
    """Turns a solution into tokens and the places of its step scores, as `StepEncoder` does."""

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens; equal solutions give equal tokens."""
        ...


class ModelScorer(abc.ABC):
    """A step scorer over a model, which is loaded when it is first asked.

    A solution takes one forward pass, whatever its number of steps; solutions are packed by a
    budget of tokens, and their scores do not depend on it. A solution that was scored before is
    looked up. Steps beyond the longest row have no score (None).

    Args:
        key: name and digest of all that shapes a score.
        splitter: how a text is divided; see `stepmark.prm.SPLITTERS`.
        aggregation: how its scores become that of a solution unless told otherwise.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.
    """

    aggregation: str = "min"
    columns: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        key: str,
        *,
        splitter: str = "newline",
        aggregation: str = "min",
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.key = key
        self.splitter = splitter
        self.aggregation = aggregation
        self.tokens_per_batch = tokens_per_batch
        split_steps("", splitter)
        self.cache = ScoreCache(key, cache)

    def budget(self, device: Any) -> int:
        """Tokens of one forward pass on a device of torch."""
        return self.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, ELSEWHERE)

    @property
    @abc.abstractmethod
    def encoder(self) -> Encoder:
        """The one function from texts to tokens of this scorer."""

    @abc.abstractmethod
    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Scores in [0, 1] of the kept steps of each row, in the given order."""

    def segment(self, text: str) -> tuple[Span, ...]:
        """The steps of a text, as the model knows them from its training."""
        return split_steps(text, self.splitter)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """One score per step of each item; None for a step beyond the longest row.

        Raises:
            DataError: an item has no steps, or the model gives another number of scores.
        """
        digests = [item_digest(item) for item in items]
        new = {
            digest: item
            for digest, item in zip(digests, items, strict=True)
            if self.cache.get(digest) is None
        }
        known = {digest: self.cache.get(digest) or () for digest in digests}
        if new:
            fresh = dict(zip(new, self._fresh(list(new.values())), strict=True))
            self.cache.add(fresh)
            known |= fresh
        return [StepScores(known[digest], self.key) for digest in digests]

    def _fresh(self, items: Sequence[StepItem]) -> list[Scores]:
        rows = [self.encoder.encode(item.problem, item.steps) for item in items]
        for item, row in zip(items, rows, strict=True):
            self._check(item, len(row.ends) + row.cut, "places for")
        found = self.read(rows)
        scores = [(*known, *(None,) * row.cut) for known, row in zip(found, rows, strict=True)]
        for item, given in zip(items, scores, strict=True):
            self._check(item, len(given), "scores of")
        return scores

    def _check(self, item: StepItem, count: int, what: str) -> None:
        if count != len(item.steps):
            raise DataError(
                f"The scorer {self.key!r} has {count} {what} {len(item.steps)} steps of "
                f"{item.problem.id!r}; scores are matched to steps by their index. Its encoder "
                "does not fit its model: report it with this solution."
            )


def known_dtype(dtype: str) -> Dtype:
    """The name of a type that weights may have.

    Raises:
        ConfigError: it is none.
    """
    for known in get_args(Dtype):
        if dtype == known:
            return known
    raise ConfigError(f"dtype is {dtype!r}; allowed are {', '.join(get_args(Dtype))}.")


def encoding_settings(scorer: str, given: Mapping[str, Any]) -> EncodingSettings:
    """Settings of an encoding as a reference names them.

    Raises:
        ConfigError: a setting is not known, or its value is not allowed.
    """
    try:
        return EncodingSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "mark"
        known = list(EncodingSettings.model_fields)
        hint = did_you_mean(name, known) if name not in known else ""
        said = (
            f"The scorer {scorer!r} has {name} = {given.get(name)!r}: {first['msg']}.",
            hint,
            f"Settings of an encoding: {', '.join(known)}.",
        )
        raise ConfigError(" ".join(filter(None, said))) from error
