r"""Outcome reward models: one number for a whole solution, read at its last token.

The head is the one of ``AutoModelForSequenceClassification`` with ``num_labels = 1``, so that the
checkpoint loads there. Two losses, for a reward :math:`r`:

.. math:: L_{point} = \mathrm{BCE}(\sigma(r), y), \quad
    L_{pair} = -\log \sigma(r_c - r_r - m) + c \, (r_c + r_r)^2

with the margin :math:`m` and the coefficient :math:`c` that holds rewards near 0 (Bradley-Terry;
arXiv:2204.05862, arXiv:2312.09244 for the second term).

Shapes: ``R`` solutions, ``P`` pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stepmark.errors import ConfigError, DataError, RunError
from stepmark.training.forward import hidden_states

from .checkpoint import PrmCard, check_self_test, read_card, scores_of
from .encoding import Encoded
from .loading import Base, Dtype, base_parts, trained_parts
from .model import TOKENS_PER_BATCH, batches_of, head_of, sample_of

__all__ = ["OutcomeModel", "load_outcome_model", "outcome_base", "pair_loss", "point_loss"]


class OutcomeModel:
    """Gives one reward per encoded solution, in float32; higher is better.

    Args:
        model: of transformers, for sequence classification with one label.
        tokenizer: the model's.

    Raises:
        ConfigError: body and head cannot be told apart, or the head gives more than one number.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.body, self.layer = head_of(model)
        if getattr(self.layer, "out_features", 1) != 1:
            raise ConfigError(
                f"The head of this {type(model).__name__} gives {self.layer.out_features} numbers; "
                "an outcome reward is one. Take a model with num_labels = 1."
            )

    def rewards_of(self, encoded: Sequence[Encoded]) -> Float[Tensor, " R"]:
        """Rewards of solutions that all have a kept step; gradient flows."""
        hidden_ND = hidden_states(self.body, [sample_of(row) for row in encoded])
        places, start = list[int](), 0
        for row in encoded:
            places.append(start + row.ends[-1] + 1)
            start += len(row.ids) + 1
        states_RD = hidden_ND[torch.tensor(places, device=hidden_ND.device)]
        return self.layer(states_RD.to(self.layer.weight.dtype)).float().squeeze(-1)

    @torch.no_grad()
    def rewards(
        self, encoded: Sequence[Encoded], tokens_per_batch: int = TOKENS_PER_BATCH
    ) -> list[float | None]:
        """A reward per solution, in the given order; None for one that was cut.

        Raises:
            DataError: a reward is not a number.
        """
        training = self.model.training
        self.model.eval()
        whole = [row if not row.cut else row._replace(ends=()) for row in encoded]
        found: list[float | None] = [None] * len(whole)
        try:
            for places in batches_of(self.body, whole, tokens_per_batch):
                rewards_R = self.rewards_of([whole[place] for place in places]).tolist()
                for place, reward in zip(places, rewards_R, strict=True):
                    found[place] = reward
        finally:
            self.model.train(training)
        if any(reward is not None and reward != reward for reward in found):
            raise DataError(
                f"The {type(self.model).__name__} gives rewards that are no numbers (NaN). Its "
                "weights are spoilt: take an earlier checkpoint, or load it in float32."
            )
        return found

    def step_probabilities(self, encoded: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """The logistic function of each reward, as cards keep it; none for one that was cut."""
        return [
            () if reward is None else (float(torch.sigmoid(torch.tensor(reward))),)
            for reward in self.rewards(encoded)
        ]


def outcome_base(base: Base, dtype: Dtype = "float32", device: str = "auto") -> OutcomeModel:
    """An outcome model with a fresh head on a causal base; see `stepmark.prm.base_model`."""
    return OutcomeModel(*base_parts(base._replace(head="reward"), dtype, device))


def load_outcome_model(
    path: Path | str, dtype: Dtype = "float32", device: str = "auto"
) -> tuple[OutcomeModel, PrmCard]:
    """A trained outcome model and its card; its three rows were scored again and agree.

    Raises:
        SetupError: there is no such folder, no ``prm.json``, or a weight is missing.
        RunError: the card is of a process reward model, or the scores differ.
    """
    card = read_card(path)
    if card.kind != "outcome":
        raise RunError(
            f"{str(path)!r} holds a process reward model, which scores steps. Load it with "
            "stepmark.prm.load_step_model."
        )
    model = OutcomeModel(*trained_parts(str(path), "reward", dtype, device))
    check_self_test(card, scores_of(model, card), str(path), exact=dtype == "float32")
    return model, card


def point_loss(
    rewards_R: Float[Tensor, " R"], labels_R: Float[Tensor, " R"]
) -> Float[Tensor, " R"]:
    r"""Binary cross entropy of each solution, in nats.

    >>> point_loss(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor([0.6931])
    """
    return nn.functional.binary_cross_entropy_with_logits(rewards_R, labels_R, reduction="none")


def pair_loss(
    chosen_P: Float[Tensor, " P"],
    rejected_P: Float[Tensor, " P"],
    *,
    margin: float = 0.0,
    center: float = 0.0,
) -> Float[Tensor, " P"]:
    """Bradley-Terry's loss of each pair, in nats.

    Args:
        chosen_P: rewards of the better solutions.
        rejected_P: of the worse ones.
        margin: by which the better one must lead.
        center: weight of the squared sum of both; 0.01 holds rewards near 0.

    >>> pair_loss(torch.tensor([1.0]), torch.tensor([1.0]), center=0.01)
    tensor([0.7331])
    """
    order_P = -nn.functional.logsigmoid(chosen_P - rejected_P - margin)
    return order_P + center * (chosen_P + rejected_P) ** 2
