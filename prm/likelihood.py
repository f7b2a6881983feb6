r"""`likelihood`: how probable a causal language model finds the tokens of a step.

.. math:: s_k = \exp\big(\min_{t \in k} \log p(y_t)\big)
    \quad\text{or}\quad s_k = \exp\Big(\frac{1}{|k|} \sum_{t \in k} \log p(y_t)\Big)

So a score is a probability: that of the step's least probable token, or the geometric mean over its
tokens. It needs no training, and it knows style as well as truth: a baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from stepmark.errors import ConfigError

from .encoding import Encoded, StepEncoder
from .model_scorer import ModelScorer, encoding_settings, known_dtype
from .places import folder_digest, folder_of

__all__ = ["Likelihood", "step_logps"]


class Likelihood(ModelScorer):
    """Scores a step by the probability of its tokens; see above.

    Args:
        model: folder or hub id of a causal language model.
        of: ``mean`` or ``min``: over the tokens of a step.
        dtype: in which the model computes.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tokens_per_batch: tokens of one forward pass; by default as many as suit the device.
        cache: folder that keeps scores between processes; None keeps them in memory.
        **encoding: settings of `stepmark.prm.EncodingSettings`; a chat template is used where the
            tokenizer has one.

    Raises:
        SetupError: there is no such model.
        ConfigError: a setting is not allowed.
    """

    def __init__(
        self,
        model: str,
        of: Literal["mean", "min"] = "mean",
        *,
        dtype: str = "float32",
        device: str = "auto",
        tokens_per_batch: int | None = None,
        cache: str | Path | None = None,
        **encoding: Any,
    ) -> None:
        if of not in ("mean", "min"):
            raise ConfigError(f"likelihood has of = {of!r}; it is 'mean' or 'min', over tokens.")
        self.path, self.of, self.device = folder_of(model), of, device
        self.dtype = known_dtype(dtype)
        self.settings = encoding_settings("likelihood", {"chat": "auto", **encoding})
        super().__init__(
            f"likelihood@{folder_digest(self.path, of, dtype, self.settings)}",
            splitter=self.settings.splitter,
            aggregation=of,
            tokens_per_batch=tokens_per_batch,
            cache=cache,
        )

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        """Model and tokenizer."""
        from stepmark.engines import load_policy

        return load_policy(self.path, self.dtype, self.device)

    @cached_property
    def encoder(self) -> StepEncoder:  # type: ignore[override]
        """Steps behind the problem, each with its separator."""
        return StepEncoder(self.loaded[1], self.settings)

    def read(self, rows: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """The probability of each kept step."""
        reduce = torch.Tensor.mean if self.of == "mean" else torch.Tensor.min
        steps = step_logps(self.loaded[0], rows, self.budget(self.loaded[0].device))
        return [tuple(float(reduce(step).exp()) for step in row) for row in steps]


def step_logps(
    model: Any, rows: Sequence[Encoded], tokens_per_batch: int
) -> list[list[torch.Tensor]]:
    """Log-probs of the tokens of each kept step, in nats, float32; one forward pass per row."""
    from stepmark.training.forward import reference_logps
    from stepmark.training.sample import TrainingSample

    places = [place for place, row in enumerate(rows) if row.ends]
    samples = [TrainingSample(rows[place].prompt_ids, rows[place].ids) for place in places]
    logps = reference_logps(model, samples, 1.0, tokens_per_batch) if samples else []
    found: list[list[torch.Tensor]] = [[] for _ in rows]
    for place, flat in zip(places, logps, strict=True):
        ends = rows[place].ends
        starts = (0, *(end + 1 for end in ends[:-1]))
        found[place] = [flat[a : b + 1] for a, b in zip(starts, ends, strict=True)]
    return found
