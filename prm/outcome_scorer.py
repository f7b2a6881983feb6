r"""`OutcomeScorer`: a trained outcome reward model wherever a step scorer is used.

It reads a solution as one step that is the whole text, so that in RL its score falls on the last
token: an outcome reward. The score is the logistic function of the reward,

.. math:: s = \sigma(r - c)

which for a model of single solutions is the chance that the solution ends right, and for one of
pairs the chance that it is preferred to a solution of reward ``c``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stepmark.errors import ConfigError, DataError, RunError
from stepmark.types import Problem, StepItem, StepScores

from .encoding import Encoded, StepEncoder
from .model_scorer import Dtype, ModelScorer, known_dtype
from .places import folder_digest, folder_of
from .steps import Span, solution_steps

if TYPE_CHECKING:
    from .outcome import OutcomeModel

__all__ = ["OutcomeScorer", "score_of_reward"]


def score_of_reward(reward: float, center: float = 0.0) -> float:
    """The logistic function of a reward, in float64; rises with it, and never overflows.

    Rewards up to 23 above the center stay apart as float32 tells them; from 37 on all are 1.0.

    >>> score_of_reward(0.0), score_of_reward(30.0) > score_of_reward(20.0)
    (0.5, True)
    """
    above = reward - center
    if above >= 0:
        return 1 / (1 + math.exp(-above))
    return math.exp(above) / (1 + math.exp(above))


class OutcomeScorer(ModelScorer):
    """Scores whole solutions with a checkpoint of ``stepmark rm train``.

    A text is one step. Of a solution that comes in several, the last one has the score, and the
    others have none. Either way the text is divided and encoded as the card says, so equal texts
    have equal scores. A solution that is longer than the card allows has no score: read at the end
    of a part, the reward would be that of another solution.

    Args:
        path: folder of the checkpoint, or a hub id of one.
        dtype: in which the model computes.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.
        center: the reward that gets the score 0.5. The order of solutions does not depend on it
            but where scores come close to 1; rewards of pairwise models have no zero of their own.

    Raises:
        SetupError: there is no such checkpoint.
        RunError: its card cannot be read, or it is a process reward model.
        ConfigError: the center is no finite number.
    """

    scores_whole: ClassVar[bool] = True
    """Whether a score is of a whole solution and not of a step."""

    def __init__(
        self,
        path: str | Path,
        *,
        dtype: str = "float32",
        device: str = "auto",
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
        center: float = 0.0,
    ) -> None:
        from .checkpoint import read_card

        self.path, self.device = folder_of(path), device
        self.dtype: Dtype = known_dtype(dtype)
        self.center = _checked(center)
        self.card = read_card(self.path)
        if self.card.kind != "outcome" or self.card.head != "reward":
            raise RunError(
                f"The card of {str(path)!r} says kind = {self.card.kind!r} with head = "
                f"{self.card.head!r}; an outcome reward model has 'outcome' with 'reward'. Load it "
                "with stepmark.prm.load_scorer, or restore its prm.json."
            )
        shaping = ("outcome", self.card.encoding, dtype, self.center)
        super().__init__(
            f"orm@{folder_digest(self.path, *shaping)}",
            splitter=self.card.encoding.splitter,
            aggregation="last",
            tokens_per_batch=tokens_per_batch,
            cache=cache,
        )

    @cached_property
    def model(self) -> OutcomeModel:
        """The model, on its device, in eval mode."""
        from .outcome import load_outcome_model

        return load_outcome_model(self.path, self.dtype, self.device)[0]

    @cached_property
    def encoder(self) -> WholeEncoder:  # type: ignore[override]
        """The encoder of the card, with the checkpoint's own tokenizer."""
        return WholeEncoder(StepEncoder(self.model.tokenizer, self.card.encoding))

    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """The score of each solution; none for one that was cut."""
        rewards = self.model.rewards(rows, self.budget(self.model.model.device))
        return [() if r is None else (score_of_reward(r, self.center),) for r in rewards]

    def segment(self, text: str) -> tuple[Span, ...]:
        """One step that is the whole text."""
        return ((0, len(text)),) if text else ()

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """The score of each solution at its last step; None for the steps before it.

        Raises:
            DataError: an item has no steps.
        """
        if any(not item.steps for item in items):
            raise DataError(
                f"The scorer {self.key!r} was given a solution without steps; a solution is one "
                "text or more. Leave it out, or give its text as one step."
            )
        texts = [solution_steps(item.steps, self.splitter) or ("",) for item in items]
        divided = [replace(item, steps=steps) for item, steps in zip(items, texts, strict=True)]
        return [
            replace(found, scores=(*(None,) * (len(item.steps) - 1), *found.scores))
            for item, found in zip(items, super().score(divided), strict=True)
        ]

    def _check(self, item: StepItem, count: int, what: str) -> None:
        super()._check(replace(item, steps=item.steps[-1:]), count, what)


class WholeEncoder:
    """Encodes solutions whole: their one place is the last token.

    Args:
        encoder: of the card.
    """

    def __init__(self, encoder: StepEncoder) -> None:
        self.encoder = encoder

    def encode(self, problem: Problem, steps: Sequence[str]) -> Encoded:
        """The solution as tokens, with one place; without one where it does not fit whole.

        Raises:
            DataError: as `StepEncoder.encode`.
            ConfigError: as `StepEncoder.encode`.
        """
        row = self.encoder.encode(problem, steps)
        if row.cut or not row.ends:
            return Encoded(row.prompt_ids, (), (), 1)
        return row._replace(ends=(len(row.ids) - 1,))


def _checked(center: object) -> float:
    if isinstance(center, int | float) and not isinstance(center, bool) and math.isfinite(center):
        return float(center)
    raise ConfigError(
        f"The scorer has center = {center!r}; it is a reward, a finite number. Write "
        "CHECKPOINT?center=2.5, or leave it out for 0."
    )
