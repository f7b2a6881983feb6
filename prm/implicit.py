r"""`implicit`: the process reward that is in a model trained on outcomes alone.

.. math:: q_k = \beta \sum_{t \le e_k} \log \frac{\pi(y_t)}{\pi_\mathrm{ref}(y_t)}, \quad
    r_k = q_k - q_{k-1}, \quad s_k = \sigma(r_k)

ImplicitPRM (arXiv:2412.01981) and PRIME (arXiv:2502.01456): ``e_k`` is the last token of step k,
and the reward of a step is what it adds to the sum. The sigmoid that brings it to [0, 1] is ours:
a step that both models find equally probable scores 1/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from stepmark.errors import ConfigError

from .encoding import Encoded, StepEncoder
from .likelihood import step_logps
from .model_scorer import ModelScorer, encoding_settings, known_dtype
from .places import folder_digest, folder_of

__all__ = ["Implicit"]


class Implicit(ModelScorer):
    """Scores a step by what it adds to the log-ratio of two models; see above.

    Args:
        model: folder or hub id of the causal model that was trained on outcomes.
        reference: the one that its training began with; it must have the same vocabulary.
        beta: weight of the log-ratio; 0.05 in both papers.
        dtype: in which both models compute.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.
        **encoding: settings of `stepmark.prm.EncodingSettings`; a chat template is used where the
            tokenizer has one.

    Raises:
        SetupError: there is no such model.
        ConfigError: a setting is not allowed, or the vocabularies differ.
    """

    def __init__(
        self,
        model: str,
        reference: str,
        beta: float = 0.05,
        *,
        dtype: str = "float32",
        device: str = "auto",
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
        **encoding: Any,
    ) -> None:
        if not beta > 0:
            raise ConfigError(f"implicit has beta = {beta!r}; it must be above 0 (0.05 is usual).")
        self.path, self.reference = folder_of(model), folder_of(reference)
        self.beta, self.dtype, self.device = beta, known_dtype(dtype), device
        self.settings = encoding_settings("implicit", {"chat": "auto", **encoding})
        other = folder_digest(self.reference)
        super().__init__(
            f"implicit@{folder_digest(self.path, other, beta, dtype, self.settings)}",
            splitter=self.settings.splitter,
            tokens_per_batch=tokens_per_batch,
            cache=cache,
        )

    @cached_property
    def loaded(self) -> tuple[Any, Any, Any]:
        """Model, reference and tokenizer."""
        from stepmark.engines import load_policy

        model, tokenizer = load_policy(self.path, self.dtype, self.device)
        reference, other = load_policy(self.reference, self.dtype, self.device)
        if tokenizer.get_vocab() != other.get_vocab():
            raise ConfigError(
                f"{str(self.path)!r} and {str(self.reference)!r} have different vocabularies, so "
                "their log-probs are of different tokens. Name the model that training began with."
            )
        return model, reference, tokenizer

    @cached_property
    def encoder(self) -> StepEncoder:  # type: ignore[override]
        """Steps behind the problem, each with its separator."""
        return StepEncoder(self.loaded[2], self.settings)

    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """The reward of each kept step, brought to [0, 1]."""
        model, reference, _ = self.loaded
        own = step_logps(model, rows, self.budget(model.device))
        theirs = step_logps(reference, rows, self.budget(model.device))
        return [
            tuple(_score(self.beta, a, b) for a, b in zip(one, two, strict=True))
            for one, two in zip(own, theirs, strict=True)
        ]


def _score(beta: float, own: torch.Tensor, reference: torch.Tensor) -> float:
    return float(torch.sigmoid(beta * (own.double() - reference.double()).sum()))
