"""The one function that turns a problem and its steps into ids and the places of step scores.

Training, scoring, RL and pictures all call `StepEncoder.encode`, and its settings travel with the
checkpoint. Each step is tokenized by itself and its place is remembered: a separator is never
searched for in tokenized text, where it may have become other tokens, or stand in the problem.

::

    prompt (template, system text, one BOS)  step 1  separator (tag)  step 2  separator (tag)
                                                              place 1                  place 2
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stepmark.engines import render
from stepmark.errors import ConfigError, DataError
from stepmark.tasks import PromptTemplate
from stepmark.types import Problem

__all__ = ["Encoded", "EncodingSettings", "StepEncoder", "readable"]

Overflow = Literal["drop_tail", "drop_row", "error"]


class EncodingSettings(BaseModel):
    """How a problem and its steps become tokens; stored in the checkpoint of a reward model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str = "{problem}\n"
    """The words around the problem; holds ``{problem}`` once."""
    system: str | None = None
    """System message of a chat; without a chat template it stands above the text."""
    chat: Literal["auto", "always", "never"] = "never"
    """Whether the tokenizer's chat template goes around the problem."""
    separator: str = "\n"
    """Text behind each step; its tokens belong to the step. May be empty."""
    mark: Literal["last_token", "tag"] = "last_token"
    """Where a step's score is read: at the last token of step and separator, or at a tag token."""
    tag: str | None = None
    """Text of the tag, one token of the tokenizer, such as ``<extra_0>``; with ``mark = "tag"``."""
    max_tokens: int = Field(default=2048, ge=8)
    """Longest row, prompt included, in tokens."""
    overflow: Overflow = "drop_tail"
    """What happens to a longer row: its last steps have no score, the whole row has none, or an
    error."""
    splitter: str = "newline"
    """How a completion is divided into steps; see `stepmark.prm.SPLITTERS`."""

    @model_validator(mode="after")
    def _tag_and_mark_agree(self) -> EncodingSettings:
        if (self.mark == "tag") != bool(self.tag):
            raise ValueError(
                f"mark is {self.mark!r} and tag is {self.tag!r}; a tag is needed with "
                "mark = 'tag', and only there"
            )
        return self


class Encoded(NamedTuple):
    """A solution as tokens: the prompt, the steps behind it, and where each step's score is."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    """Of all steps that are kept, with separators and tags."""
    ends: tuple[int, ...]
    """Place in ``ids`` of the token at which each kept step is scored, rising."""
    cut: int
    """How many steps at the end have no place, because the row would be too long."""

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return len(self.prompt_ids) + len(self.ids)


REMEMBERED = 4096
"""Texts whose tokens an encoder holds, and as many prompts; some MB at most."""
LONGEST_REMEMBERED = 4000
"""Characters of such a text."""


class _Remembered(dict[str, tuple[int, ...]]):
    """Tokens by text, worked out once: rows that share a beginning repeat it. The oldest leave."""

    def __init__(self, tokens_of: Callable[[Any], tuple[int, ...]]) -> None:
        super().__init__()
        self.tokens_of = tokens_of

    def get_or_make(self, text: str, source: Any = None) -> tuple[int, ...]:
        """The tokens of a text, made of ``source`` where that is more than the text."""
        found = self.get(text)
        if found is None:
            found = self.tokens_of(text if source is None else source)
            if len(text) <= LONGEST_REMEMBERED:
                if len(self) >= REMEMBERED:
                    self.pop(next(iter(self)), None)
                self[text] = found
        return found


_HALF = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """The text as tokenizers take it: U+FFFD for each half of a surrogate pair, which are no text.

    Recorded responses hold them where a character was cut in two.

    >>> readable("so " + chr(0xD835)) == "so " + chr(0xFFFD), readable("so 7")
    (True, 'so 7')
    """
    return _HALF.sub("\ufffd", text)


class StepEncoder:
    """Encodes solutions for one reward model; its tokenizer must not change meanwhile.

    Args:
        tokenizer: the reward model's, of transformers; the policy's may be another.
        settings: from the checkpoint, or of a training run.

    Raises:
        ConfigError: the tag is not one token of this tokenizer, or the template is not valid.
    """

    def __init__(self, tokenizer: Any, settings: EncodingSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.template = PromptTemplate(
            "prm", settings.template, system=settings.system, chat=settings.chat
        )
        self._steps = _Remembered(self._plain)
        self._prompts = _Remembered(self._prompt)
        self.separator_ids = self._plain(settings.separator) if settings.separator else ()
        self.tag_ids = self._tag_ids()

    @property
    def key(self) -> str:
        """Eight hexadecimal digits of the settings and the vocabulary."""
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        content = json.dumps([self.settings.model_dump(), vocabulary], ensure_ascii=False)
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens; equal solutions give equal tokens, whoever asks.

        Args:
            problem: its text goes through the template.
            steps: texts, in order, without what separates them.

        Raises:
            DataError: there is no step, a step has no tokens, or the row is longer than
                ``max_tokens`` and ``overflow`` is ``error``.
            ConfigError: the prompt is empty, or the tokenizer refuses its template.
        """
        if not steps:
            raise DataError(
                f"The solution of problem {problem.id!r} has no steps, so nothing in it can be "
                "scored. Leave the row out, or split the text with another splitter."
            )
        prompt = self._prompts.get_or_make(problem.text, problem)
        ids: list[int] = []
        ends: list[int] = []
        for number, step in enumerate(steps, 1):
            own = (*self._steps.get_or_make(step), *self.separator_ids, *self.tag_ids)
            if not own:
                raise DataError(
                    f"Step {number} of problem {problem.id!r} is {step!r}, which has no tokens. "
                    "Merge empty steps with their neighbours, or set a separator."
                )
            if len(prompt) + len(ids) + len(own) > self.settings.max_tokens:
                return self._too_long(problem, prompt, ids, ends, len(steps))
            ids += own
            ends.append(len(ids) - 1)
        return Encoded(prompt, tuple(ids), tuple(ends), 0)

    def _too_long(
        self,
        problem: Problem,
        prompt: tuple[int, ...],
        ids: Sequence[int],
        ends: Sequence[int],
        steps: int,
    ) -> Encoded:
        limit, overflow = self.settings.max_tokens, self.settings.overflow
        if overflow == "error":
            raise DataError(
                f"The solution of problem {problem.id!r} takes more than max_tokens = {limit} "
                f"tokens: step {len(ends) + 1} of {steps} does not fit. Raise max_tokens, or set "
                'overflow = "drop_tail".'
            )
        if overflow == "drop_row":
            return Encoded(prompt, (), (), steps)
        return Encoded(prompt, tuple(ids), tuple(ends), steps - len(ends))

    def _prompt(self, problem: Problem) -> tuple[int, ...]:
        """Of any length: what happens to a long one is for ``overflow`` to say."""
        asked = replace(problem, text=readable(problem.text))
        return render(
            asked, self.tokenizer, self.template, max_tokens=0, model_limit=sys.maxsize
        ).ids

    def _plain(self, text: str) -> tuple[int, ...]:
        """Ids of a text in which nothing is a special token, whatever it looks like."""
        given = readable(text)
        found = self.tokenizer(given, add_special_tokens=False, split_special_tokens=True)
        return tuple(found["input_ids"])

    def _tag_ids(self) -> tuple[int, ...]:
        tag = self.settings.tag
        if tag is None:
            return ()
        ids = self.tokenizer(tag, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise ConfigError(
                f"The tag {tag!r} is {len(ids)} tokens of this tokenizer; it must be one, or two "
                'tags would not be told apart. Choose mark = "last_token", or add the tag to the '
                "tokenizer as a special token."
            )
        return (int(ids[0]),)
