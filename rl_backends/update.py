"""Learning from the samples of one step: epochs, minibatches, micro-batches, optimizer steps."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from stepmark.errors import RunError
from stepmark.seeds import derive_seed
from stepmark.training.critic import Critic, token_values
from stepmark.training.forward import token_logps
from stepmark.training.packing import pack
from stepmark.training.sample import TrainingSample

from .backend import Backend
from .metrics import Totals

__all__ = ["Updater", "split"]


def split(samples: Sequence[TrainingSample], parts: int, seed: int) -> list[list[TrainingSample]]:
    """The samples in at most ``parts`` minibatches of whole groups, shuffled by the seed alone."""
    groups = list(dict.fromkeys(sample.group for sample in samples))
    random.Random(seed).shuffle(groups)
    parts = min(parts, len(groups))
    bounds = [len(groups) * part // parts for part in range(parts + 1)] if parts else []
    chosen = [set(groups[low:high]) for low, high in pairwise(bounds)]
    return [[sample for sample in samples if sample.group in names] for names in chosen]


@dataclass(frozen=True, slots=True)
class Updater:
    """Gives the policy the gradient of a backend's losses."""

    model: Any
    optimizer: torch.optim.Optimizer
    backend: Backend
    temperature: float
    seed: int
    critic: Critic | None = None
    critic_optimizer: torch.optim.Optimizer | None = None

    def update(
        self, step: int, samples: Sequence[TrainingSample], trains_policy: bool = True
    ) -> dict[str, float]:
        """Metrics of mu epochs over the samples; the weights are changed in place.

        Without ``trains_policy`` the policy's gradient is dropped before its optimizer sees it: a
        gradient of zeros would still decay the weights and count as a step of Adam.

        Raises:
            RunError: a loss or a gradient is not finite; the weights are those before that update.
        """
        totals, config = Totals(), self.backend.config
        for epoch in range(config.mu):
            seed = derive_seed(self.seed, "minibatches", step, epoch)
            for minibatch in split(samples, config.minibatches, seed):
                self._backward(step, minibatch, totals)
                if not trains_policy:
                    self.optimizer.zero_grad(set_to_none=True)
                totals.add(self._step(step))
                totals.updates += 1
        return totals.means()

    def _backward(self, step: int, minibatch: list[TrainingSample], totals: Totals) -> None:
        config, weights = self.backend.config, self.backend.weights(minibatch)
        tokens = sum(len(sample.ids) for sample in minibatch)
        for optimizer in self._optimizers():
            optimizer.zero_grad(set_to_none=True)
        for micro in pack(minibatch, config.tokens_per_microbatch):
            out = token_logps(
                self.model, micro, temperature=self.temperature, with_entropy=config.log_entropy
            )
            if self.critic is not None:
                out = replace(out, values_N=token_values(self.critic, micro))
            losses = self.backend.losses(out, micro, weights)
            loss = torch.stack(list(losses.terms.values())).sum()
            totals.add(losses.metrics)
            totals.add(
                {f"loss/{name}": float(term.detach()) for name, term in losses.terms.items()}
            )
            totals.add({"loss": float(loss.detach())})
            if out.entropies_N is not None:
                totals.add({"entropy": float(out.entropies_N.detach().sum()) / tokens})
            if bad := totals.first_bad():
                raise _not_finite(bad, step)
            loss.backward()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        both = (self.optimizer, self.critic_optimizer)
        return [optimizer for optimizer in both if optimizer is not None]

    def _step(self, step: int) -> dict[str, float]:
        """Gradient norms before clipping; nothing moves unless all are finite."""
        norms = {"grad_norm": self._clip(self.model)}
        if self.critic is not None:
            norms["critic/grad_norm"] = self._clip(self.critic)
        for name, norm in norms.items():
            if not math.isfinite(norm):
                raise _not_finite(name, step)
        for optimizer in self._optimizers():
            optimizer.step()
        return norms

    def _clip(self, model: Any) -> float:
        trained = [p for p in model.parameters() if p.grad is not None]
        return float(torch.nn.utils.clip_grad_norm_(trained, self.backend.config.grad_clip))


def _not_finite(name: str, step: int) -> RunError:
    return RunError(
        f"{name} is not a finite number in step {step}; the weights were left as they were. "
        "A run keeps its settings: start one with a new --out, a lower algorithm.learning_rate or "
        "algorithm.grad_clip, and a checkpoint of this run as --model."
    )
