"""What the adapters share: settings, loading, one forward pass per solution."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stepmark.prm.encoding import Encoded
from stepmark.prm.model_scorer import Encoder, ModelScorer, known_dtype
from stepmark.prm.places import folder_digest, folder_of

if TYPE_CHECKING:
    from stepmark.prm.model import StepModel

__all__ = ["PublishedScorer"]


class PublishedScorer(ModelScorer):
    """A published reward model as a step scorer; the weights are loaded when first asked.

    Args:
        path: folder or hub id of the checkpoint; by default the published one.
        dtype: in which the model computes.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        max_tokens: longest row; steps beyond it have no score.
        splitter: how a text is divided; by default as in the model's training.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.

    Raises:
        SetupError: there is no such checkpoint.
    """

    name: ClassVar[str]
    published: ClassVar[str]
    """The hub id that is loaded unless another place is named."""
    splits_at: ClassVar[str] = "newline"
    aggregates_by: ClassVar[str] = "min"

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        dtype: str = "float32",
        device: str = "auto",
        max_tokens: int = 4096,
        splitter: str | None = None,
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.path = folder_of(path or self.published)
        self.dtype, self.device, self.max_tokens = known_dtype(dtype), device, max_tokens
        splitter = splitter or self.splits_at
        shaping = (*self.shaping(), dtype, max_tokens, splitter)
        super().__init__(
            f"{self.name}@{folder_digest(self.path, *shaping)}",
            splitter=splitter,
            aggregation=self.aggregates_by,
            tokens_per_batch=tokens_per_batch,
            cache=cache,
        )

    def shaping(self) -> tuple[Any, ...]:
        """What else shapes a score, for the key."""
        return ()

    @abc.abstractmethod
    def load(self) -> StepModel:
        """The model with its head."""

    @abc.abstractmethod
    def make_encoder(self, tokenizer: Any) -> Encoder:
        """The one function from texts to the tokens that the model was trained on."""

    @cached_property
    def model(self) -> StepModel:
        """The model, on its device, in eval mode."""
        return self.load()

    @cached_property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """What `make_encoder` gives for the checkpoint's tokenizer."""
        return self.make_encoder(self.model.tokenizer)

    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Probability that each kept step is right."""
        return self.model.step_probabilities(rows, self.budget(self.model.model.device))
