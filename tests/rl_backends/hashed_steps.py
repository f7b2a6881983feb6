"""A small reward model that really learns: logistic regression on hashed words of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import torch

from stepmark.types import LabelledSteps, StepItem, StepScores

WORD = re.compile(r"\s*\S+")
SIZE = 4096


def place_of(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big") % SIZE


class HashedSteps:
    """Scores a step by its words and by the step as a whole.

    Args:
        by: ``line`` or ``word``: what a step is.
        epochs: passes of a refresh, in minibatches whose order comes from the seed.
    """

    def __init__(self, by: str = "line", epochs: int = 20, rate: float = 0.1) -> None:
        self.by, self.epochs, self.rate = by, epochs, rate
        self.weights = torch.zeros(SIZE + 1)
        self.asked = 0
        self.seen: list[tuple[Sequence[LabelledSteps], Sequence[LabelledSteps], float, int]] = []

    @property
    def key(self) -> str:
        digest = blake2b(self.weights.numpy().tobytes(), digest_size=4).hexdigest()
        return f"hashed@{digest}"

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        pattern = WORD if self.by == "word" else re.compile(r"[^\n]*\n+|[^\n]+")
        cuts = [0, *(found.end() for found in pattern.finditer(text))]
        cuts[-1] = len(text)
        return tuple(pairwise(cuts))

    def features(self, steps: Sequence[str]) -> torch.Tensor:
        rows = torch.zeros(len(steps), SIZE + 1)
        for number, step in enumerate(steps):
            for word in (*step.split(), f"all {step}"):
                rows[number, place_of(word)] = 1.0
        rows[:, SIZE] = 1.0
        return rows

    @torch.no_grad()
    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        self.asked += len(items)
        return [
            StepScores(
                tuple((self.features(item.steps) @ self.weights).sigmoid().tolist()), self.key
            )
            for item in items
        ]

    def refresh(
        self,
        fresh: Sequence[LabelledSteps],
        history: Sequence[LabelledSteps],
        history_share: float,
        seed: int,
    ) -> Mapping[str, float]:
        self.seen.append((fresh, history, history_share, seed))
        known = [
            (step, label)
            for row in (*fresh, *history)
            for step, label in zip(row.steps, row.labels, strict=True)
            if label is not None
        ]
        features = self.features([step for step, _ in known])
        labels = torch.tensor([label for _, label in known])
        weights = self.weights.clone().requires_grad_()
        optimizer = torch.optim.Adam([weights], lr=self.rate)
        first = last = 0.0
        for epoch in range(self.epochs):
            # The global generator: the loop seeds it and gives it back.
            order = torch.randperm(len(known))
            losses = []
            for part in order.split(64):
                loss = torch.nn.functional.binary_cross_entropy_with_logits(
                    features[part] @ weights, labels[part]
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            last = sum(losses) / len(losses)
            first = last if epoch == 0 else first
        self.weights = weights.detach()
        return {"first_loss": first, "loss": last, "steps": float(len(known))}

    def state(self) -> Mapping[str, Any]:
        return {"weights": self.weights}

    def load(self, state: Mapping[str, Any]) -> None:
        self.weights = state["weights"].clone()
