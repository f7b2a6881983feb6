"""`PrmScorer`: a trained process reward model as a step scorer, for RL, search and files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stepmark.errors import RunError

from .encoding import Encoded, StepEncoder
from .model_scorer import Dtype, ModelScorer, known_dtype
from .places import folder_digest, folder_of

if TYPE_CHECKING:
    from .model import StepModel

__all__ = ["PrmScorer"]


class PrmScorer(ModelScorer):
    """Scores steps with a checkpoint of ``stepmark prm train``.

    Its card says how texts are divided and encoded, and how scores become one for the solution. The
    weights are loaded, and the self-test of the card is done, when the first score is asked for.

    Args:
        path: folder of the checkpoint, or a hub id of one.
        dtype: in which the model computes.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.

    Raises:
        SetupError: there is no such checkpoint.
        RunError: its card cannot be read, or it is an outcome reward model.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        dtype: str = "float32",
        device: str = "auto",
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
    ) -> None:
        from .checkpoint import read_card

        self.path, self.device = folder_of(path), device
        self.dtype: Dtype = known_dtype(dtype)
        self.card = read_card(self.path)
        if self.card.kind != "process":
            raise RunError(
                f"{str(path)!r} holds an outcome reward model, which gives a solution one number "
                "and its steps none. Load it with stepmark.prm.load_scorer, or OutcomeScorer."
            )
        shaping = (self.card.encoding, self.card.head, self.card.tokens, dtype)
        super().__init__(
            f"prm@{folder_digest(self.path, *shaping)}",
            splitter=self.card.encoding.splitter,
            aggregation=self.card.aggregation,
            tokens_per_batch=tokens_per_batch,
            cache=cache,
        )

    @cached_property
    def model(self) -> StepModel:
        """The model, on its device, in eval mode."""
        from .checkpoint import load_step_model

        return load_step_model(self.path, self.dtype, self.device)[0]

    @cached_property
    def encoder(self) -> StepEncoder:  # type: ignore[override]
        """The encoder of the card, with the checkpoint's own tokenizer."""
        return StepEncoder(self.model.tokenizer, self.card.encoding)

    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Probability that each kept step is right."""
        return self.model.step_probabilities(rows, self.budget(self.model.model.device))
