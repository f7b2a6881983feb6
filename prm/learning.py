r"""The loss of a process reward model, and how it fares on held-out rows.

.. math:: L = \sum_i w_i \, \mathrm{CE}(z_i, y_i), \quad
    \mathrm{CE} = -y \log p_{right} - (1 - y) \log p_{wrong}

over the labelled steps of a batch: a hard label is 0 or 1, a soft one an estimate between them. The
weights sum to 1: all steps alike, or every row alike, times those of the classes.

Shapes: ``S`` labelled steps, ``N`` tokens of the solutions, ``D`` hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stepmark.errors import ConfigError
from stepmark.training.forward import body_batches, hidden_states
from stepmark.training.head import logps_of_hidden
from stepmark.training.processes import processes
from stepmark.training.sample import TrainingSample

from .batches import Batches
from .checkpoint import PrmCard, with_scores, write_card
from .data import StepRow
from .fitting import Loss
from .keeping import MINUS_LOSS
from .metrics import auroc, first_below, first_errors, processbench_f1
from .model import StepModel, sample_of
from .splits import write_problems
from .train_config import StepLoss

__all__ = ["StepLearner", "check_reading", "class_weights", "held_out_metrics", "step_loss"]

CLIP = 10.0
"""Largest weight of a class over the other one."""
THRESHOLD = 0.5
"""Below it a step is called wrong in held-out metrics."""


class StepLearner:
    """A step model with its rows.

    Args:
        model: trained in place.
        rows: learnt from.
        held_out: examined.
        card: of the checkpoints.
        config: of the loss.
        batches: which rows each step learns from.
        problems: texts of the problems that are learnt from.
        known: ids of those that the base was trained on.
    """

    def __init__(
        self,
        model: StepModel,
        rows: Sequence[StepRow],
        held_out: Sequence[StepRow],
        card: PrmCard,
        config: StepLoss,
        batches: Batches,
        problems: Collection[str] = (),
        known: Collection[str] = (),
    ) -> None:
        self.step_model, self.model, self.tokenizer = model, model.model, model.tokenizer
        self.rows, self.held_out, self.card = rows, held_out, card
        self.config, self.batches = config, batches
        self.problems, self.known = frozenset(problems), frozenset(known)
        self.head = model.layer if model.head == "classifier" else None
        self.extra = language_head(model, config.seed) if config.lm_weight else None
        self.weights = class_weights(rows) if config.class_weights == "balanced" else (1.0, 1.0)

    def losses(
        self, rows: Sequence[int], budget: int, mine: Sequence[int] | None = None
    ) -> Iterator[Callable[[], Loss]]:
        """The losses of a batch, one per forward pass; they add up to its loss.

        Args:
            rows: of the whole batch.
            budget: tokens of a forward pass.
            mine: those of them that this process computes; None for all.
        """
        chosen = [self.rows[row] for row in rows]
        weights = self._weights(chosen)
        tokens = sum(len(row.ids) for row in chosen)
        if mine is not None:
            weight_of = dict(zip(rows, weights, strict=True))
            chosen, weights = [self.rows[row] for row in mine], [weight_of[row] for row in mine]
        samples = [sample_of(row.encoded) for row in chosen]
        place = {id(sample): number for number, sample in enumerate(samples)}
        for batch in body_batches(self.step_model.body, samples, budget):
            numbers = [place[id(sample)] for sample in batch]
            some, weights_S = [chosen[n] for n in numbers], [weights[n] for n in numbers]
            yield partial(self._loss, some, batch, torch.cat(weights_S), tokens)

    def _weights(self, rows: Sequence[StepRow]) -> list[Tensor]:
        """A weight per labelled step; over all rows they sum to 1."""
        wrong, right = self.weights
        found: list[Tensor] = []
        for row in rows:
            labels_S = torch.tensor(row.labels)
            weights_S = labels_S * right + (1 - labels_S) * wrong
            if self.config.average == "rows":
                weights_S = weights_S / len(weights_S)
            found.append(weights_S)
        whole = float(torch.cat(found).sum())
        return [weights_S / whole for weights_S in found]

    def _loss(
        self,
        rows: Sequence[StepRow],
        samples: Sequence[TrainingSample],
        weights_S: Tensor,
        tokens: int,
    ) -> Loss:
        labels_S = torch.tensor([label for row in rows for label in row.labels])
        hidden_ND = hidden_states(self.step_model.body, samples)
        logits_S2 = self.step_model.logits_of(hidden_ND[_ends(rows, hidden_ND.device)])
        device = logits_S2.device
        loss = step_loss(logits_S2, labels_S.to(device), weights_S.to(device))
        numbers = {"loss/steps": float(loss.detach())}
        if self.config.lm_weight:
            language = self.config.lm_weight * self._language_loss(rows, hidden_ND) / tokens
            numbers["loss/lm"] = float(language.detach())
            loss = loss + language
        numbers |= {
            "loss": float(loss.detach()),
            "num_tokens": float(sum(row.length for row in rows)),
            "labels/right": float(sum(row_labels(rows, right=True))),
            "labels/wrong": float(sum(row_labels(rows, right=False))),
        }
        return Loss(loss, numbers)

    def _language_loss(self, rows: Sequence[StepRow], hidden_ND: Tensor) -> Tensor:
        """Negative log-prob of the tokens of the solutions, summed, in nats."""
        keep, ids, start = list[int](), list[int](), 0
        for row in rows:
            keep += range(start, start + len(row.ids))
            ids += row.ids.tolist()
            start += len(row.ids) + 1
        device = hidden_ND.device
        head: Any = self.step_model.layer if self.extra is None else self.extra
        out = logps_of_hidden(
            hidden_ND[torch.tensor(keep, device=device)].to(head.weight.dtype),
            head,
            torch.tensor(ids, device=device),
            temperature=1.0,
            vocabulary=int(head.weight.shape[0]),
        )
        return -out.logps_N.sum()

    def evaluate(self) -> Mapping[str, float]:
        """Metrics on the held-out rows; empty without any."""
        if not self.held_out:
            return {}
        budget = self.config.tokens_per_microbatch
        scores = processes().divided(
            [row.encoded for row in self.held_out],
            lambda encoded: self.step_model.step_probabilities(encoded, budget),
        )
        return held_out_metrics(self.held_out, scores)

    def size(self, row: int) -> int:
        """Tokens of a row."""
        return self.rows[row].length

    def best_metric(self, found: Mapping[str, float]) -> str:
        """F1 of whole solutions where the rows tell their first error, else that of steps.

        ``minus_loss`` where the rows have labels of one kind only.
        """
        return next((name for name in ("f1", "step_f1") if name in found), MINUS_LOSS)

    def write(self, folder: Path) -> None:
        """``prm.json`` with the scores of its rows, and which problems were learnt from."""
        write_card(folder, with_scores(self.step_model, self.card))
        write_problems(folder, self.problems, more=self.known)


def step_loss(
    logits_S2: Float[Tensor, "S 2"], labels_S: Float[Tensor, " S"], weights_S: Float[Tensor, " S"]
) -> Float[Tensor, ""]:
    r"""Weighted sum of cross entropies with a label or an estimate, in nats.

    >>> logits = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    >>> round(float(step_loss(logits, torch.tensor([1.0, 0.5]), torch.tensor([0.5, 0.5]))), 4)
    0.91
    """
    logps_S2 = logits_S2.float().log_softmax(-1)
    entropy_S = -(labels_S * logps_S2[:, 1] + (1 - labels_S) * logps_S2[:, 0])
    return (entropy_S * weights_S).sum()


def class_weights(rows: Sequence[StepRow]) -> tuple[float, float]:
    """Weights (wrong, right): the rarer a wrong step, the more it counts, up to ten times.

    Raises:
        ConfigError: one of the classes is missing.
    """
    right = sum(label for row in rows for label in row.labels)
    wrong = sum(1 - label for row in rows for label in row.labels)
    if not right or not wrong:
        raise ConfigError(
            f'algorithm.class_weights is "balanced", and the labels hold {right:g} right and '
            f"{wrong:g} wrong steps: one class is missing. Give rows of both, or set it to "
            '"none".'
        )
    return min(max(right / wrong, 1 / CLIP), CLIP), 1.0


def held_out_metrics(
    rows: Sequence[StepRow], scores: Sequence[Sequence[float]]
) -> dict[str, float]:
    """How well steps are told apart; of whole solutions too where the rows tell their first error.

    ``step_f1`` is the harmonic mean of the shares of wrong and of right steps that are called so;
    ``f1`` is ProcessBench's (arXiv:2412.06559) over rows whose first error is known.
    """
    labels = [label for row in rows for label in row.labels]
    flat = [score for row in scores for score in row]
    pairs = list(zip(flat, labels, strict=True))
    eps = 1e-7
    clipped = torch.tensor(flat).clamp(eps, 1 - eps)
    given = torch.tensor(labels)
    entropy = -(given * clipped.log() + (1 - given) * (1 - clipped).log())
    found = {"loss": float(entropy.mean()), "labels": float(len(labels))}
    right = [score >= THRESHOLD for score, label in pairs if label >= THRESHOLD]
    wrong = [score < THRESHOLD for score, label in pairs if label < THRESHOLD]
    if right and wrong:
        found["right_recall"] = sum(right) / len(right)
        found["wrong_recall"] = sum(wrong) / len(wrong)
        found["step_f1"] = processbench_f1(found["wrong_recall"], found["right_recall"])
        found["auroc"] = auroc(flat, [label >= THRESHOLD for label in labels]) or 0.0
    told = [(row.first_error, s) for row, s in zip(rows, scores, strict=True)]
    known = [(first, s) for first, s in told if first is not None]
    firsts = [first for first, _ in known]
    if any(first < 0 for first in firsts) and any(first >= 0 for first in firsts):
        errors = first_errors([first_below(s, THRESHOLD) for _, s in known], firsts)
        found["f1"], found["error_accuracy"] = errors.f1, errors.error_accuracy
        found["correct_accuracy"] = errors.correct_accuracy
    return found


def row_labels(rows: Sequence[StepRow], *, right: bool) -> Iterator[bool]:
    """One value per label: whether it is of that kind."""
    return ((label >= THRESHOLD) is right for row in rows for label in row.labels)


def language_head(model: StepModel, seed: int) -> nn.Module | None:
    """A head for next tokens beside a classifier; a causal model has its own, so None."""
    if model.head != "classifier":
        return None
    embedding = model.model.get_input_embeddings().weight
    width = int(model.layer.in_features)
    head = nn.Linear(width, int(embedding.shape[0]), bias=False)
    spread = float(getattr(model.model.config, "initializer_range", 0.02))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nn.init.normal_(head.weight, std=spread)
    return head.to(embedding.device, embedding.dtype)


def check_reading(model: StepModel, row: StepRow, labels: tuple[str, str] | None = None) -> None:
    """Refuse a model that learns the opposite of what it is told: one row, no weight is changed.

    The states of the row are moved against the gradient of a loss that calls its steps right; read
    by the whole head, the number for right must rise over that for wrong, at every step.

    Args:
        model: as it will be trained.
        row: any.
        labels: texts (wrong, right) whose tokens are looked up anew, for ``two_logits``.

    Raises:
        ConfigError: it falls.
    """
    columns = [0, 1]
    if labels is not None:
        columns = [
            model.tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in labels
        ]
    with torch.no_grad():
        states_SD = model.step_states([row.encoded])
    states_SD = states_SD.detach().float().requires_grad_()
    ones_S = torch.ones(len(states_SD), device=states_SD.device)
    step_loss(model.logits_of(states_SD), ones_S, ones_S).backward()
    assert states_SD.grad is not None
    step_SD = nn.functional.normalize(states_SD.grad, dim=-1)

    def lead(at_SD: Tensor) -> Tensor:
        logits_SV = model.layer(at_SD.to(model.layer.weight.dtype)).float()
        return logits_SV[:, columns[1]] - logits_SV[:, columns[0]]

    with torch.no_grad():
        if bool((lead(states_SD - step_SD) > lead(states_SD)).all()):
            return
    raise ConfigError(
        "A loss that calls a step right makes the model call it wrong: the two logits are the "
        "wrong way round, or equal. Check model.wrong and model.right, and the head of model.base."
    )


def _ends(rows: Sequence[StepRow], device: torch.device) -> Tensor:
    places, start = list[int](), 0
    for row in rows:
        places += [start + end + 1 for end in row.ends]
        start += len(row.ids) + 1
    return torch.tensor(places, device=device)
