"""A model that scores steps: a body of transformers, and what is read from it at a step's end.

Two ways to read. ``classifier``: a linear layer of two numbers, wrong and right, as
``AutoModelForTokenClassification`` has it. ``two_logits``: a causal language model whose logits of
two tokens, such as ``-`` and ``+``, are compared. Either way a row goes through the packed forward
pass of `stepmark.training`: nothing is padded, and a problem is read once for all its solutions.

Shapes: ``S`` kept steps of all rows, ``N`` tokens of all rows, ``D`` hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stepmark.errors import ConfigError, DataError
from stepmark.training.forward import body_batches, hidden_states
from stepmark.training.head import split_model
from stepmark.training.sample import TrainingSample

from .encoding import Encoded

__all__ = ["HeadKind", "StepModel", "TwoTokens", "head_of", "sample_of"]

HeadKind = Literal["classifier", "two_logits"]

WRONG, RIGHT = 0, 1
"""Columns of step logits, and classes of a token-classification head."""

TOKENS_PER_BATCH = 8192
"""Tokens of one forward pass without gradient, unless another number is asked for."""


class TwoTokens(NamedTuple):
    """Ids of the tokens that a causal model says of a wrong and of a right step."""

    wrong: int
    right: int


class StepModel:
    """Gives two logits per step of encoded solutions, wrong and right, in float32.

    Args:
        model: of transformers; for ``classifier`` one for token classification with two labels,
            for ``two_logits`` a causal language model.
        tokenizer: the model's.
        tokens: for ``two_logits``: which logits are compared; None for ``classifier``.

    Raises:
        ConfigError: body and head cannot be told apart, or the head has not two labels.
    """

    def __init__(self, model: Any, tokenizer: Any, tokens: TwoTokens | None = None) -> None:
        self.model, self.tokenizer, self.tokens = model, tokenizer, tokens
        self.head: HeadKind = "classifier" if tokens is None else "two_logits"
        self.body, self.layer = head_of(model) if tokens is None else _causal_halves(model)
        labels = getattr(self.layer, "out_features", 2)
        if tokens is None and labels != 2:
            raise ConfigError(
                f"The head of this {type(model).__name__} gives {labels} numbers; a step has two, "
                "wrong and right. Take a model for token classification with num_labels = 2."
            )

    def step_logits(self, encoded: Sequence[Encoded]) -> Float[Tensor, "S 2"]:
        """Logits (wrong, right) of all kept steps of all rows, in order; gradient flows.

        The two are read from the state of the model after a step's last token.
        """
        return self.logits_of(self.step_states(encoded))

    def step_states(self, encoded: Sequence[Encoded]) -> Float[Tensor, "S D"]:
        """The state of the body at the end of every kept step of all rows, in order."""
        rows = [row for row in encoded if row.ends]
        if not rows:
            width = int(self.model.config.get_text_config().hidden_size)
            return torch.zeros(0, width, device=self.model.device)
        hidden_ND = hidden_states(self.body, [sample_of(row) for row in rows])
        places, start = list[int](), 0
        for row in rows:
            places += [start + end + 1 for end in row.ends]
            start += len(row.ids) + 1
        return hidden_ND[torch.tensor(places, device=hidden_ND.device)]

    def logits_of(self, states_SD: Float[Tensor, "S D"]) -> Float[Tensor, "S 2"]:
        """What the head says of states, in float32."""
        if self.tokens is None:
            return self.layer(states_SD.to(_dtype_of(self.layer))).float()
        pair = torch.tensor(self.tokens, device=states_SD.device)
        weight_2D, bias = self.layer.weight[pair], getattr(self.layer, "bias", None)
        given_SD = states_SD.to(weight_2D.dtype)
        return nn.functional.linear(
            given_SD, weight_2D, None if bias is None else bias[pair]
        ).float()

    @torch.no_grad()
    def step_probabilities(
        self, encoded: Sequence[Encoded], tokens_per_batch: int = TOKENS_PER_BATCH
    ) -> list[tuple[float, ...]]:
        """Probability that each kept step is right, one tuple per row, in the given order.

        Rows are packed by a budget of tokens; the numbers do not depend on it. The training flag
        of the model is put back.

        Raises:
            DataError: a probability is not a number.
        """
        training = self.model.training
        self.model.eval()
        found: dict[int, tuple[float, ...]] = {}
        try:
            for places in batches_of(self.body, encoded, tokens_per_batch):
                rows = [encoded[place] for place in places]
                right_S = self.step_logits(rows).softmax(-1)[:, RIGHT].cpu()
                parts = right_S.split([len(row.ends) for row in rows])
                found |= {p: tuple(part.tolist()) for p, part in zip(places, parts, strict=True)}
        finally:
            self.model.train(training)
        if any(score != score for scores in found.values() for score in scores):
            raise DataError(
                f"The {type(self.model).__name__} gives scores that are no numbers (NaN). Its "
                "weights are spoilt: take an earlier checkpoint, or load it in float32."
            )
        return [found.get(place, ()) for place in range(len(encoded))]


def sample_of(row: Encoded) -> TrainingSample:
    """A row as the packed forward pass takes it: the state after its last token is one more."""
    return TrainingSample(row.prompt_ids, (*row.ids, 0))


def batches_of(body: nn.Module, encoded: Sequence[Encoded], budget: int) -> list[list[int]]:
    """Places of the rows of each forward pass; rows without a kept step are in none."""
    samples = {place: sample_of(row) for place, row in enumerate(encoded) if row.ends}
    place_of = {id(sample): place for place, sample in samples.items()}
    packed = body_batches(body, list(samples.values()), budget)
    return [[place_of[id(sample)] for sample in batch] for batch in packed]


def head_of(model: Any) -> tuple[nn.Module, Any]:
    """Body and linear head of a classification model: ``logits = head(body(ids))``.

    Raises:
        ConfigError: the model has no such halves; dropout between them must be off.
    """
    body = getattr(model, "base_model", None)
    heads = (getattr(model, name, None) for name in ("score", "classifier"))
    head = next((one for one in heads if isinstance(one, nn.Module)), None)
    if isinstance(body, nn.Module) and body is not model and head is not None:
        return body, head
    raise ConfigError(
        f"A {type(model).__name__} has no body with a separate head named score or classifier. "
        'Take a model for token classification, or head = "two_logits" with a causal one.'
    )


def _causal_halves(model: Any) -> tuple[nn.Module, Any]:
    split = split_model(model)
    if split is None or not isinstance(getattr(split.head, "weight", None), Tensor):
        raise ConfigError(
            f"The output head of a {type(model).__name__} cannot be told apart from its body, so "
            'two of its logits cannot be read alone. Choose head = "classifier".'
        )
    return split.body, split.head


def _dtype_of(layer: Any) -> torch.dtype:
    weights: Iterable[Tensor] = layer.parameters()
    return next(iter(weights)).dtype
