"""`rlhflow`: RLHFlow/Llama3.1-8B-PRM-Deepseek-Data and its sisters.

A chat in which the user writes a step per turn, the first one behind the problem, and the assistant
answers ``+`` or ``-``. A step's score is read at the token that predicts the answer. The publisher
runs the model once per step, with ``+`` for all earlier answers; in a causal model one pass over
the whole chat gives the same numbers. Where the answers stand follows from the chat template alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stepmark.errors import ConfigError, DataError, SetupError
from stepmark.prm.encoding import Encoded
from stepmark.types import Problem

from .joint import encoded, tokens_of
from .scorer import PublishedScorer

if TYPE_CHECKING:
    from stepmark.prm.model import StepModel

__all__ = ["RlhFlowEncoder", "RlhFlowScorer"]

ANSWER = "+"


class RlhFlowEncoder:
    """The chat through the tokenizer's template, with the places before each answer.

    Args:
        tokenizer: the checkpoint's.
        max_tokens: longest row.

    Raises:
        SetupError: the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise SetupError(
                "This tokenizer has no chat template, which the adapter rlhflow needs to place the "
                "steps. Take the tokenizer of the checkpoint:\n"
                f"    hf download {RlhFlowScorer.published}"
            )
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        added = [one.content for one in tokenizer.added_tokens_decoder.values() if one.special]
        self.special = tuple(filter(None, dict.fromkeys([*tokenizer.all_special_tokens, *added])))

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens; each step is scored at the token before its answer.

        A text that holds a special token of the chat could answer for itself: it has no scores.

        Raises:
            DataError: there are no steps.
            ConfigError: the template changes earlier turns, or an answer is not one token.
        """
        if not steps:
            raise DataError(
                f"The solution of problem {problem.id!r} has no steps, so nothing in it can be "
                "scored. Leave the row out, or split the text with another splitter."
            )
        if any(token in text for text in (problem.text, *steps) for token in self.special):
            return Encoded((), (), (), len(steps))
        turns: list[dict[str, str]] = []
        answers: list[int] = []
        for number, step in enumerate(steps):
            asked = f"{problem.text.strip()} {step.strip()}" if number == 0 else step.strip()
            turns.append({"role": "user", "content": asked})
            answers.append(len(self._render(turns, asks=True)))
            turns.append({"role": "assistant", "content": ANSWER})
        text = self._render(turns, asks=False)
        first = self._render(turns[:1], asks=False)
        prompt_end = first.index(turns[0]["content"]) + len(problem.text.strip())
        tokens = tokens_of(self.tokenizer, text, special=True)
        places = [self._before(text, tokens, answer, turns) for answer in answers]
        return encoded(tokens, prompt_end, places, self.max_tokens)

    def _render(self, turns: Sequence[dict[str, str]], *, asks: bool) -> str:
        return self.tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=asks
        )

    def _before(self, text: str, tokens: Any, answer: int, turns: Sequence[Any]) -> int:
        """The token that predicts the answer at a character."""
        place = tokens.holding(answer) if text.startswith(ANSWER, answer) else -1
        if place < 1 or tokens.spans[place] != (answer, answer + len(ANSWER)):
            raise ConfigError(
                f"The chat template of this tokenizer does not put the answer {ANSWER!r}, as a "
                f"token of its own, behind its generation prompt (found "
                f"{text[answer : answer + 8]!r} in a chat of {len(turns)} turns). Take the "
                "tokenizer of the checkpoint."
            )
        return place - 1


class RlhFlowScorer(PublishedScorer):
    """Scores by an RLHFlow reward model: the probability of ``+`` against ``-`` as the answer."""

    name: ClassVar[str] = "rlhflow"
    published: ClassVar[str] = "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data"
    splits_at: ClassVar[str] = "blank_line"
    aggregates_by: ClassVar[str] = "mean"

    def load(self) -> StepModel:
        """The causal model, with the ids of both answers."""
        from .weights import causal_step_model

        return causal_step_model(self.path, "-", ANSWER, self.dtype, self.device)

    def make_encoder(self, tokenizer: Any) -> RlhFlowEncoder:
        """One turn a step, through the chat template."""
        return RlhFlowEncoder(tokenizer, self.max_tokens)
