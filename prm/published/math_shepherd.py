"""`math-shepherd`: peiyi9979/math-shepherd-mistral-7b-prm (arXiv:2312.08935).

A causal model reads ``PROBLEM Step 1: ... ки`` and, on further lines, ``Step 2: ... ки``; at each
tag the logits of ``+`` and ``-`` are compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stepmark.errors import ConfigError, DataError
from stepmark.prm.encoding import Encoded
from stepmark.types import Problem

from .joint import encoded, tokens_of
from .scorer import PublishedScorer

if TYPE_CHECKING:
    from stepmark.prm.model import StepModel

__all__ = ["MathShepherdEncoder", "MathShepherdScorer"]

TAG = "ки"
_NUMBERED = re.compile(r"step\s+\d+\s*[:.]", re.IGNORECASE)


class MathShepherdEncoder:
    """The text as the publisher writes it, tokenised as a whole.

    Args:
        tokenizer: the checkpoint's.
        max_tokens: longest row.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self.tokenizer, self.max_tokens = tokenizer, max_tokens

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens; each step is scored at its tag.

        Steps are numbered where they are not; blank lines in a step become one blank.

        Raises:
            DataError: there are no steps.
            ConfigError: the tag is not one token.
        """
        if not steps:
            raise DataError(
                f"The solution of problem {problem.id!r} has no steps, so nothing in it can be "
                "scored. Leave the row out, or split the text with another splitter."
            )
        text, tags = problem.text.strip(), list[int]()
        prompt_end = len(text)
        for number, step in enumerate(steps, 1):
            words = re.sub(r"\s*\n\s*", " ", step.strip())
            named = words if _NUMBERED.match(words) else f"Step {number}: {words}"
            text += (" " if number == 1 else "\n") + f"{named} {TAG}"
            tags.append(len(text) - len(TAG))
        tokens = tokens_of(self.tokenizer, text, special=False)
        places = [tokens.holding(tag + len(TAG) - 1) for tag in tags]
        both = zip(places, tags, strict=True)
        if any(place < 0 or tokens.spans[place][0] > tag for place, tag in both):
            raise ConfigError(
                f"The tag {TAG!r} is more than one token of this tokenizer, so it is not that of a "
                "Math-Shepherd model. Choose another adapter, or the tokenizer of the checkpoint."
            )
        return encoded(tokens, prompt_end, places, self.max_tokens)


class MathShepherdScorer(PublishedScorer):
    """Scores by Math-Shepherd's reward model: the probability of ``+`` against ``-`` at ``ки``."""

    name: ClassVar[str] = "math-shepherd"
    published: ClassVar[str] = "peiyi9979/math-shepherd-mistral-7b-prm"

    def load(self) -> StepModel:
        """The causal model, with the ids of both labels."""
        from .weights import causal_step_model

        return causal_step_model(self.path, "-", "+", self.dtype, self.device)

    def make_encoder(self, tokenizer: Any) -> MathShepherdEncoder:
        """Problem and numbered steps in one text."""
        return MathShepherdEncoder(tokenizer, self.max_tokens)
