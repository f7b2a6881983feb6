"""Learning from the samples of one step: epochs, minibatches, micro-batches, optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stepmark.training.critic import Critic, token_values
from stepmark.training.forward import micro_batches, token_logps
from stepmark.training.precision import Precision, changed_share, some_weights
from stepmark.training.sample import TrainingSample

from .backend import Backend
from .metrics import Totals
from .replay import BrokenUpdate
from .window import Window

__all__ = ["Updater"]


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
    precision: Precision = field(default_factory=Precision)

    def update(self, window: Window, between: Callable[[], None] | None = None) -> dict[str, float]:
        """Metrics of mu epochs over a window; the weights are changed in place.

        Without ``trains_policy`` the policy's gradient is dropped before its optimizer sees it: a
        gradient of zeros would still decay the weights and count as a step of Adam.

        Args:
            window: its cursor and its totals move on with every minibatch.
            between: called before each minibatch, where the window may be saved; it may raise.

        Raises:
            BrokenUpdate: a loss or a gradient is not finite, or a loss is larger than
                ``loss_limit``; the weights are those before that optimizer step.
        """
        config, totals = self.backend.config, window.totals
        for minibatch in window.left(config.mu, config.minibatches, self.seed):
            if between is not None:
                between()
            self.clear_gradients()
            bad = self._backward(minibatch.samples, totals)
            if not window.trains_policy:
                self.optimizer.zero_grad(set_to_none=True)
            norms = self.gradient_norms()
            bad = bad or _first_bad(norms)
            if bad is not None:
                raise BrokenUpdate(*bad, window.step, *minibatch, window.trains_policy)
            totals.add(norms | self._step())
            totals.updates += 1
            window.done += 1
        return totals.means()

    def _step(self) -> dict[str, float]:
        """One step of every optimizer; of bfloat16 weights, the share that it changed."""
        before = some_weights(self.model) if self.model.dtype == torch.bfloat16 else None
        for optimizer in self._optimizers():
            optimizer.step()
        return {} if before is None else {"weights_changed": changed_share(before, self.model)}

    def _backward(
        self, minibatch: list[TrainingSample], totals: Totals
    ) -> tuple[str, float] | None:
        """Gradients of a minibatch; or the first number that cannot be learnt from."""
        whole = 0.0
        for loss, numbers in self.micro_losses(minibatch):
            totals.add(numbers)
            whole += numbers["loss"]
            if bad := _first_bad(numbers):
                return bad
            loss.backward()
        return ("loss", whole) if abs(whole) > self.backend.config.loss_limit else None

    def micro_losses(
        self, minibatch: Sequence[TrainingSample], weights: Mapping[str, float] | None = None
    ) -> Iterator[tuple[torch.Tensor, dict[str, float]]]:
        """The loss of each micro-batch with gradient, and its numbers; they add up.

        Args:
            minibatch: samples of one optimizer step, or some of them.
            weights: what the losses are divided by; those of these samples when absent.
        """
        config = self.backend.config
        weights = self.backend.weights(minibatch) if weights is None else weights
        tokens = sum(len(sample.ids) for sample in minibatch)
        for micro in micro_batches(self.model, minibatch, config.tokens_per_microbatch):
            with self.precision.forward(), self.precision.recomputing(self.model, self.critic):
                out = token_logps(
                    self.model, micro, temperature=self.temperature, with_entropy=config.log_entropy
                )
                if self.critic is not None:
                    out = replace(out, values_N=token_values(self.critic, micro))
                losses = self.backend.losses(out, micro, weights)
                loss = torch.stack(list(losses.terms.values())).sum()
            numbers = dict(losses.metrics)
            numbers |= {f"loss/{name}": float(t.detach()) for name, t in losses.terms.items()}
            numbers["loss"] = float(loss.detach())
            if out.entropies_N is not None:
                numbers["entropy"] = float(out.entropies_N.detach().sum()) / tokens
            yield loss, numbers

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        both = (self.optimizer, self.critic_optimizer)
        return [optimizer for optimizer in both if optimizer is not None]

    def clear_gradients(self) -> None:
        """Before a minibatch: no gradient is left of the one before."""
        for optimizer in self._optimizers():
            optimizer.zero_grad(set_to_none=True)

    def gradient_norms(self) -> dict[str, float]:
        """Norms of the gradients before they are clipped; then they are clipped."""
        norms = {"grad_norm": self._clip(self.model)}
        if self.critic is not None:
            norms["critic/grad_norm"] = self._clip(self.critic)
        return norms

    def _clip(self, model: Any) -> float:
        trained = [p for p in model.parameters() if p.grad is not None]
        return float(torch.nn.utils.clip_grad_norm_(trained, self.backend.config.grad_clip))


def _first_bad(numbers: Mapping[str, float]) -> tuple[str, float] | None:
    return next(((name, n) for name, n in numbers.items() if not math.isfinite(n)), None)
